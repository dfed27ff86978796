// ThreadPool: every thread runs, barriers line all of them up, writes before a barrier are seen after it, callers queue.
#include "octavo/thread_pool.h"

#include <cstdio>
#include <numeric>
#include <vector>

using namespace octavo;

namespace {

int failures = 0;

void check(bool holds, const char* what, int threads) {
  if (holds) return;
  std::printf("%s failed with %d threads\n", what, threads);
  ++failures;
}

void check_every_thread_runs(int threads) {
  ThreadPool pool(threads);
  std::vector<int> runs(static_cast<size_t>(threads), 0);
  for (int i = 0; i < 200; ++i) {
    pool.run([&](int thread, int count) { runs[static_cast<size_t>(thread)] += count; });
  }
  for (int n : runs) check(n == 200 * threads, "run on every thread", threads);
}

// Each thread writes its cell, then reads all others' after the barrier: a torn barrier or a lost write shows as a wrong sum.
void check_barriers(int threads) {
  ThreadPool pool(threads);
  std::vector<int> cells(static_cast<size_t>(threads), 0);
  std::vector<int> wrong(static_cast<size_t>(threads), 0);
  pool.run([&](int thread, int count) {
    for (int round = 1; round <= 500; ++round) {
      cells[static_cast<size_t>(thread)] = round;
      pool.barrier();
      wrong[static_cast<size_t>(thread)] += std::accumulate(cells.begin(), cells.end(), 0) != round * count;
      pool.barrier();
    }
  });
  check(std::accumulate(wrong.begin(), wrong.end(), 0) == 0, "barriers", threads);
}

void check_callers_queue(int threads) {
  ThreadPool pool(threads);
  int total = 0;  // not atomic: two runs at once would be a race
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        pool.run([&](int thread, int) {
          if (thread == 0) ++total;
        });
      }
    });
  }
  for (auto& caller : callers) caller.join();
  check(total == 400, "queueing callers", threads);
}

void check_shares() {
  for (int64_t count : {0, 1, 5, 16, 37, 1000}) {
    for (int threads : {1, 2, 3, 7}) {
      for (int64_t unit : {1, 16}) {
        int64_t next = 0;
        for (int t = 0; t < threads; ++t) {
          const Range share = share_of(count, t, threads, unit);
          check(share.begin == next && share.end >= share.begin, "shares follow each other", threads);
          next = share.end;
        }
        check(next == count, "shares cover all", threads);
      }
    }
  }
}

}  // namespace

int main() {
  for (int threads : {1, 2, 3, 8}) {
    check_every_thread_runs(threads);
    check_barriers(threads);
    check_callers_queue(threads);
  }
  check_shares();
  check(usable_cpus() >= 1, "usable_cpus", 0);
  std::printf("%s\n", failures ? "failed" : "ok");
  return failures != 0;
}
