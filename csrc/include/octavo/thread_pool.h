// Threads that work on one thing at a time: run(f) calls f(thread, num_threads) on all of them, the caller being thread 0,
// and returns when all have. Inside, barrier() lines them up. Waiting threads spin for a while, then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace octavo {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return num_threads_; }

  // One caller at a time; calls from several threads queue. f must not throw.
  template <class F>
  void run(F&& f) {
    run_erased([](void* context, int thread, int count) { (*static_cast<F*>(context))(thread, count); }, &f);
  }

  // Called by every thread inside run(): returns when all have called it.
  void barrier();

 private:
  using Task = void (*)(void* context, int thread, int count);

  void run_erased(Task task, void* context);
  void worker(int thread);

  const int num_threads_;
  std::mutex callers_;  // one run() at a time
  Task task_ = nullptr;
  void* context_ = nullptr;

  alignas(64) std::atomic<uint32_t> generation_{0};  // bumped to start a run
  alignas(64) std::atomic<int> working_{0};          // threads that have not ended the run
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};       // bumped when all have arrived

  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// The share [begin, end) of `count` items for `thread` of `threads`, in units of `unit`.
struct Range {
  int64_t begin, end;
};
inline Range share_of(int64_t count, int thread, int threads, int64_t unit = 1) {
  const int64_t units = (count + unit - 1) / unit;
  const int64_t begin = units * thread / threads * unit, end = units * (thread + 1) / threads * unit;
  return {begin < count ? begin : count, end < count ? end : count};
}

// CPUs that this process may use: affinity mask, cut to the cgroup's CPU quota (rounded up); at least 1.
int usable_cpus();

}  // namespace octavo
