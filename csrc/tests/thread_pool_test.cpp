// ThreadPool: every piece is done once, what a stage wrote the next one sees, a worker that is late holds nobody up, callers queue.
#include "octavo/thread_pool.h"

#include <chrono>
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

void check_every_piece_is_done_once(int threads) {
  ThreadPool pool(threads);
  std::vector<int> done(37, 0);
  std::atomic<int> strangers{0};
  for (int i = 0; i < 300; ++i) {
    pool.for_each(37, [&](int64_t piece, int thread) {
      ++done[static_cast<size_t>(piece)];
      strangers += thread < 0 || thread >= threads;
    });
  }
  for (int n : done) check(n == 300, "each piece once a run", threads);
  check(strangers == 0, "thread numbers", threads);
  pool.for_each(0, [&](int64_t, int) { check(false, "no piece of none", threads); });
}

// Each piece writes its cell in one stage and reads all others' in the next: a stage that ends early or a lost write shows as
// a wrong sum.
void check_stages_follow_each_other(int threads) {
  constexpr int kRounds = 500, kPieces = 16;
  ThreadPool pool(threads);
  std::vector<int> cells(kPieces, 0), wrong(kPieces, 0);
  std::vector<Stage> write(kRounds), read(kRounds);
  for (int round = 0; round < kRounds; ++round) write[static_cast<size_t>(round)].reset(kPieces), read[static_cast<size_t>(round)].reset(kPieces);
  pool.run([&](int) {
    for (int round = 0; round < kRounds; ++round) {
      write[static_cast<size_t>(round)].work([&](int64_t i) { cells[static_cast<size_t>(i)] = round; });
      read[static_cast<size_t>(round)].work(
          [&](int64_t i) { wrong[static_cast<size_t>(i)] += std::accumulate(cells.begin(), cells.end(), 0) != round * kPieces; });
    }
  });
  check(std::accumulate(wrong.begin(), wrong.end(), 0) == 0, "stages", threads);
}

// Pieces dealt to homes: each is done once, whoever comes, and a thread that is alone in its home takes those of it first.
void check_homes(int threads) {
  ThreadPool pool(threads);
  for (const int64_t homes : {1, 2, 5, 16}) {
    for (const int64_t count : {0, 1, 3, 64}) {
      std::vector<int> done(static_cast<size_t>(count), 0);
      Stage stage;
      stage.reset(count, homes);
      pool.run([&](int thread) { stage.work([&](int64_t piece) { ++done[static_cast<size_t>(piece)]; }, thread * homes / threads); });
      for (const int n : done) check(n == 1, "each piece of a home once", threads);
    }
  }
  std::vector<int64_t> order;
  Stage stage;
  stage.reset(6, 3);
  stage.work([&](int64_t piece) { order.push_back(piece); }, 1);
  check(order == std::vector<int64_t>{2, 3, 4, 5, 0, 1}, "own home first", threads);
}

// A worker stuck between two stages: the others go on, and the run ends once it has left.
void check_late_workers_hold_nobody_up(int threads) {
  ThreadPool pool(threads);
  Stage first(1), second(64);
  std::atomic<int> seconds_done{0};
  std::atomic<bool> was_held_up{false};
  pool.run([&](int thread) {
    first.work([](int64_t) {});
    if (thread != 0) {
      const auto begin = std::chrono::steady_clock::now();
      while (seconds_done < 64) {
        if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) was_held_up = true;
        if (was_held_up) break;
        std::this_thread::yield();
      }
    }
    second.work([&](int64_t) { ++seconds_done; });
  });
  check(!was_held_up && seconds_done == 64, "late workers", threads);
}

void check_callers_queue(int threads) {
  ThreadPool pool(threads);
  int total = 0;  // not atomic: two runs at once would be a race
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 100; ++i) pool.for_each(1, [&](int64_t, int) { ++total; });
    });
  }
  for (auto& caller : callers) caller.join();
  check(total == 400, "queueing callers", threads);
}

void check_cuts() {
  for (int64_t count : {0, 1, 5, 16, 37, 1000}) {
    for (int64_t most : {1, 2, 7, 16}) {
      for (int64_t least : {1, 16}) {
        const Cut cut = Cut::of(count, most, least, 64);
        check(cut.pieces <= std::max(most, (count + 63) / 64) && (count == 0) == (cut.pieces == 0), "the number of pieces", 0);
        if (count > 0) check(cut.begin(0) == 0 && cut.begin(cut.pieces) == count, "pieces cover all", 0);
        for (int64_t i = 0; i < cut.pieces; ++i) {
          const int64_t size = cut.begin(i + 1) - cut.begin(i);
          check(size >= 1 && size <= 64, "the size of a piece", 0);
        }
      }
    }
  }
}

}  // namespace

int main() {
  for (int threads : {1, 2, 3, 8}) {
    check_every_piece_is_done_once(threads);
    check_stages_follow_each_other(threads);
    check_homes(threads);
    check_late_workers_hold_nobody_up(threads);
    check_callers_queue(threads);
  }
  check_cuts();
  check(usable_cpus() >= 1, "usable_cpus", 0);
  std::printf("%s\n", failures ? "failed" : "ok");
  return failures != 0;
}
