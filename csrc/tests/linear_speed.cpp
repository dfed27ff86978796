// Speed of the products on one thread, operands in the caches, in CPU time, so that neighbours disturb little: GB/s of a panel's
// bytes at one row, GOP/s at more. Every format on every ISA of this machine; `octavo bench kernels` has the rest.
//
//   linear_speed [format]     format: a label of format_info (default: all)
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <vector>

#include "octavo/kernels.h"
#include "octavo/thread_pool.h"

using namespace octavo;

namespace {

constexpr int64_t kChannels = 512, kDepth = 1024;

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

PackedMatrix random_matrix(Format format, const KernelTable& kernels, ThreadPool& pool) {
  const FormatInfo info = format_info(format);
  std::vector<uint8_t> bytes(static_cast<size_t>(kChannels * (kDepth / info.block_values) * info.block_bytes));
  std::mt19937 random(7);
  for (auto& byte : bytes) byte = static_cast<uint8_t>((random() & 0x03) | 0x38);  // as a float of any width: small and normal
  return pack_matrix(format, kChannels, kDepth, bytes.data(), bytes.size(), kernels.quantised_act, pool);
}

// Of one product of `rows` rows: the fastest in a fiftieth of a second.
double seconds_of(const KernelTable& kernels, const PackedMatrix& w, int64_t rows) {
  std::vector<float> x(static_cast<size_t>(rows * kDepth)), out(static_cast<size_t>(rows * kChannels));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (auto& value : x) value = normal(random);
  std::vector<uint8_t> act(static_cast<size_t>(rows) * act_row_bytes(w.act, kDepth));
  kernels.prepare_act(w.act, x.data(), kDepth, rows, kDepth, act.data());
  double fastest = 1;
  for (const double end = cpu_seconds() + 0.02; cpu_seconds() < end;) {
    const double began = cpu_seconds();
    kernels.linear(w, act.data(), rows, nullptr, nullptr, out.data(), kChannels, 0, w.panels());
    fastest = std::min(fastest, cpu_seconds() - began);
  }
  return fastest;
}

}  // namespace

int main(int argc, char** argv) {
  ThreadPool pool(1);
  std::printf("%-6s %-9s %11s %15s %10s %10s\n", "", "", "GB/s, 1 row", "GOP/s, 8 rows", "32 rows", "128 rows");
  for (int i = 0; i <= static_cast<int>(Format::Q6_K); ++i) {
    const auto format = static_cast<Format>(i);
    if (argc > 1 && std::strcmp(argv[1], format_info(format).label) != 0) continue;
    for (const Isa isa : kIsas) {
      if (!isa_available(isa)) continue;
      const KernelTable& kernels = kernel_table(isa);
      const PackedMatrix w = random_matrix(format, kernels, pool);
      std::printf("%-6s %-9s %11.1f", format_info(format).label, kernels.isa, static_cast<double>(w.num_bytes) / seconds_of(kernels, w, 1) * 1e-9);
      for (const int64_t rows : {8, 32, 128}) {
        const double operations = 2.0 * kChannels * kDepth * static_cast<double>(rows);
        std::printf(rows == 8 ? " %15.1f" : " %10.1f", operations / seconds_of(kernels, w, rows) * 1e-9);
      }
      std::printf("\n");
    }
  }
}
