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

// About 50 us of pauses: longer than the usual wait inside a step and between steps, shorter than a time slice. A thread that
// waits longer sleeps, so that on an oversubscribed machine its CPU goes to whoever it waits for.
constexpr int kSpins = 2000;

// Returns once `value` is not `old`, with all that was written before it changed.
template <class T>
void wait_while(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_threads_(std::max(1, num_threads)) {
  for (int i = 1; i < num_threads_; ++i) threads_.emplace_back([this, i] { worker(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
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
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  task(context, 0, num_threads_);
  for (int left; (left = working_.load(std::memory_order_acquire)) != 0;) wait_while(working_, left);
}

void ThreadPool::worker(int thread) {
  for (uint32_t seen = 0;;) {
    wait_while(generation_, seen);
    ++seen;
    if (stop_) return;
    task_(context_, thread, num_threads_);
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
  }
}

void ThreadPool::barrier() {
  if (num_threads_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
  } else {
    wait_while(phase_, phase);
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
