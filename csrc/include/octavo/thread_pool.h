// Threads that share work. ThreadPool::run(f) calls f(thread) on the caller (thread 0) and on every worker that comes in time;
// inside, work is cut into stages of pieces, and whoever is there takes the next piece. A stage ends when its pieces are done, not
// when all threads have come: one that the system has put aside holds nobody up, unless it was put aside inside a piece.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace octavo {

// While `on`, what this thread spends in stages waiting for pieces that others have in hand is added to `ns`.
struct WaitTime {
  bool on = false;
  int64_t ns = 0;
};
extern thread_local WaitTime wait_time;

// Pieces 0 .. count - 1, each taken once. They may be dealt to homes, about the same number of them in a row to each: a thread takes those of its
// own home first, and so finds in its caches what it wrote in the stage before.
class Stage {
 public:
  static constexpr int64_t kMaxHomes = 16;

  explicit Stage(int64_t count = 0) { reset(count); }

  // Between runs only.
  void reset(int64_t count, int64_t homes = 1) {
    num_homes_ = homes;
    for (int64_t h = 0; h < homes; ++h) {
      homes_[h].next.store(count * h / homes, std::memory_order_relaxed);
      homes_[h].end = count * (h + 1) / homes;
    }
    left_.store(static_cast<int32_t>(count), std::memory_order_relaxed);
  }

  // Takes pieces until none is left, then waits until all are done; what was written in them is then seen.
  template <class F>
  void work(F&& f, int64_t home = 0) {
    for (int64_t h = 0; h < num_homes_; ++h) {
      Home& from = homes_[(home + h) % num_homes_];
      for (int64_t i; (i = from.next.fetch_add(1, std::memory_order_relaxed)) < from.end;) {
        f(i);
        if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_all();
      }
    }
    wait();
  }

 private:
  struct alignas(64) Home {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void wait() const;

  int64_t num_homes_ = 1;
  Home homes_[kMaxHomes];
  alignas(64) std::atomic<int32_t> left_{0};
};

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return num_threads_; }

  // One caller at a time; calls from several threads queue. f must not throw, must end with a stage, and must do all of its
  // work in stages: it may run on the caller alone.
  template <class F>
  void run(F&& f) {
    run_erased([](void* context, int thread) { (*static_cast<F*>(context))(thread); }, &f);
  }

  // Calls f(piece, thread) for the pieces 0 .. count - 1.
  template <class F>
  void for_each(int64_t count, F&& f) {
    Stage stage(count);
    run([&](int thread) { stage.work([&](int64_t i) { f(i, thread); }); });
  }

 private:
  using Task = void (*)(void* context, int thread);

  void run_erased(Task task, void* context);
  void worker(int thread);

  const int num_threads_;
  std::mutex callers_;  // one run() at a time
  Task task_ = nullptr;
  void* context_ = nullptr;

  // The door of a run: the number of workers inside, and above it an epoch that is odd while workers may come in.
  alignas(64) std::atomic<uint32_t> door_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// Consecutive items in pieces of about equal size: `pieces` of them, piece i from begin(i) to begin(i + 1).
struct Cut {
  int64_t count, pieces;

  // At most `most` pieces, each of at least `least` items (but the last) and at most `longest`.
  static Cut of(int64_t count, int64_t most, int64_t least = 1, int64_t longest = INT64_MAX) {
    const int64_t size = std::min(longest, std::max(least, (count + most - 1) / most));
    return {count, (count + size - 1) / size};
  }
  int64_t begin(int64_t piece) const { return count * piece / pieces; }
};

// CPUs that this process may use: affinity mask, cut to the cgroup's CPU quota (rounded up); at least 1.
int usable_cpus();

}  // namespace octavo
