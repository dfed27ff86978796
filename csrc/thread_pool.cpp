#include "octavo/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
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

constexpr uint32_t kEpoch = 1u << 12;  // of the door: below it the workers inside

uint32_t epoch_of(uint32_t door) { return door / kEpoch; }
uint32_t inside(uint32_t door) { return door % kEpoch; }
bool is_open(uint32_t door) { return epoch_of(door) % 2 == 1; }

}  // namespace

thread_local WaitTime wait_time;

void Stage::wait() const {
  int32_t left = left_.load(std::memory_order_acquire);
  if (left == 0) return;
  const auto began = wait_time.on ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
  for (; left != 0; left = left_.load(std::memory_order_acquire)) wait_while(left_, left);
  if (wait_time.on) wait_time.ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
}

ThreadPool::ThreadPool(int num_threads) : num_threads_(std::clamp(num_threads, 1, static_cast<int>(kEpoch) - 1)) {
  for (int i = 1; i < num_threads_; ++i) threads_.emplace_back([this, i] { worker(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  door_.fetch_add(2 * kEpoch, std::memory_order_release);
  door_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void ThreadPool::run_erased(Task task, void* context) {
  std::lock_guard one_caller(callers_);
  task_ = task;
  context_ = context;
  door_.fetch_add(kEpoch, std::memory_order_release);
  door_.notify_all();
  task(context, 0);
  door_.fetch_add(kEpoch, std::memory_order_acq_rel);  // who has not come by now need not
  for (uint32_t door; inside(door = door_.load(std::memory_order_acquire)) != 0;) wait_while(door_, door);
}

void ThreadPool::worker(int thread) {
  for (uint32_t seen = 0;;) {
    uint32_t door = door_.load(std::memory_order_acquire);
    if (stop_) return;
    if (!is_open(door) || epoch_of(door) == seen) {
      wait_while(door_, door);
      continue;
    }
    if (!door_.compare_exchange_weak(door, door + 1, std::memory_order_acq_rel)) continue;
    seen = epoch_of(door);
    task_(context_, thread);
    if (inside(door_.fetch_sub(1, std::memory_order_acq_rel)) == 1) door_.notify_all();
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
