#include "octavo/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// About 50 us of pauses between steps before a worker sleeps; inside a run a waiter yields its CPU after as long, so that
// an oversubscribed machine goes on.
constexpr int kSpins = 2000;

template <class Done>
void spin_until(Done done) {
  for (int i = 0; !done(); ++i) {
    if (i < kSpins) {
      relax();
    } else {
      sched_yield();
    }
  }
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_threads_(std::max(1, num_threads)) {
  for (int i = 1; i < num_threads_; ++i) threads_.emplace_back([this, i] { worker(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(sleep_);
    stop_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void ThreadPool::run_erased(Task task, void* context) {
  std::lock_guard one_caller(callers_);
  if (num_threads_ == 1) {
    task(context, 0, 1);
    return;
  }
  task_ = task;
  context_ = context;
  working_.store(num_threads_ - 1, std::memory_order_relaxed);
  bool sleepers;
  {
    std::lock_guard lock(sleep_);
    generation_.fetch_add(1, std::memory_order_release);
    sleepers = sleeping_ > 0;
  }
  if (sleepers) wake_.notify_all();
  task(context, 0, num_threads_);
  spin_until([this] { return working_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::worker(int thread) {
  uint64_t seen = 0;
  for (;;) {
    bool started = false;
    for (int i = 0; i < kSpins && !started; ++i) {
      started = generation_.load(std::memory_order_acquire) != seen;
      if (!started) relax();
    }
    if (!started) {
      std::unique_lock lock(sleep_);
      ++sleeping_;
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
      --sleeping_;
    }
    ++seen;
    if (stop_) return;
    task_(context_, thread, num_threads_);
    working_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::barrier() {
  if (num_threads_ == 1) return;
  const uint64_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
  } else {
    spin_until([&] { return phase_.load(std::memory_order_acquire) != phase; });
  }
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  std::ifstream file("/sys/fs/cgroup/cpu.max");  // cgroup v2: "quota period" or "max period"
  std::string quota;
  double period = 0;
  if (file >> quota >> period && quota != "max" && period > 0) {
    cpus = std::min(cpus, static_cast<int>(std::ceil(std::stod(quota) / period)));
  }
  return std::max(1, cpus);
}

}  // namespace octavo
