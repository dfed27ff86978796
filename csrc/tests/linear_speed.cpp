// Speed of the products at the shapes of SmolLM2-135M: GB/s of weights at one row, GOP/s at many. Thirty layers of weights
// pass before one comes back, so at one row they come from memory.
//
//   linear_speed [format] [isa]     format: a label of format_info (default q4_1); isa: portable, avx2, avx512, amx
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "octavo/kernels.h"
#include "octavo/thread_pool.h"

using namespace octavo;

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

PackedMatrix random_matrix(Format format, int64_t n, int64_t k, ThreadPool& pool, double& pack_seconds, double& pack_bytes) {
  const FormatInfo info = format_info(format);
  std::vector<uint8_t> bytes(static_cast<size_t>(n * (k / info.block_values) * info.block_bytes));
  std::mt19937 random(7);
  for (auto& byte : bytes) byte = static_cast<uint8_t>((random() & 0x03) | 0x38);  // as a float of any width: small and normal
  const auto start = std::chrono::steady_clock::now();
  PackedMatrix matrix = pack_matrix(format, n, k, bytes.data(), bytes.size(), pool);
  pack_seconds += seconds_since(start);
  pack_bytes += static_cast<double>(bytes.size());
  return matrix;
}

struct Speed {
  double gigabytes, gigaops;
};

// The fastest of several passes over `matrices`; every product's activations are prepared before it, as a model would.
Speed measure(const KernelTable& kernels, const std::vector<const PackedMatrix*>& matrices, int64_t rows, ThreadPool& pool) {
  int64_t widest = 0, longest = 0;
  for (const auto* w : matrices) widest = std::max(widest, w->n), longest = std::max(longest, w->k);
  std::vector<float> x(static_cast<size_t>(rows * longest)), out(static_cast<size_t>(rows * widest));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (auto& value : x) value = normal(random);
  std::vector<uint8_t> act_storage(static_cast<size_t>(rows) * act_row_bytes(ActKind::F32, longest) + 64);
  uint8_t* act = act_storage.data() + (64 - reinterpret_cast<uintptr_t>(act_storage.data()) % 64) % 64;

  double bytes = 0, operations = 0;
  for (const auto* w : matrices) {
    bytes += static_cast<double>(w->num_bytes);
    operations += 2.0 * static_cast<double>(w->n) * static_cast<double>(w->k) * static_cast<double>(rows);
  }
  std::vector<double> times;
  double total = 0;
  while (times.size() < 3 || (total < 1.0 && times.size() < 40)) {
    const auto start = std::chrono::steady_clock::now();
    const Cut own = Cut::of(rows, 4 * pool.size());
    std::vector<Stage> prepare(matrices.size()), multiply(matrices.size());
    for (size_t i = 0; i < matrices.size(); ++i) {
      prepare[i].reset(own.pieces);
      multiply[i].reset(Cut::of(matrices[i]->panels(), 8 * pool.size()).pieces);
    }
    pool.run([&](int) {
      for (size_t i = 0; i < matrices.size(); ++i) {
        const PackedMatrix& w = *matrices[i];
        const int64_t stride = static_cast<int64_t>(act_row_bytes(w.act, w.k));
        prepare[i].work([&](int64_t p) {
          const int64_t row = own.begin(p);
          kernels.prepare_act(w.act, x.data() + row * w.k, w.k, own.begin(p + 1) - row, w.k, act + row * stride);
        });
        const Cut panels = Cut::of(w.panels(), 8 * pool.size());
        multiply[i].work([&](int64_t p) { kernels.linear(w, act, rows, nullptr, nullptr, out.data(), w.n, panels.begin(p), panels.begin(p + 1)); });
      }
    });
    times.push_back(seconds_since(start));
    total += times.back();
  }
  const double fastest = *std::min_element(times.begin(), times.end());
  return {bytes / fastest * 1e-9, operations / fastest * 1e-9};
}

}  // namespace

int main(int argc, char** argv) {
  Format format = Format::Q4_1;
  Isa isa = best_isa();
  for (int i = 0; i <= static_cast<int>(Format::Q6_K); ++i) {
    if (argc > 1 && std::strcmp(argv[1], format_info(static_cast<Format>(i)).label) == 0) format = static_cast<Format>(i);
  }
  for (Isa candidate : kIsas) {
    if (argc > 2 && isa_available(candidate) && std::strcmp(argv[2], kernel_table(candidate).isa) == 0) isa = candidate;
  }
  const KernelTable& kernels = kernel_table(isa);

  constexpr int kLayers = 30;
  struct Shape {
    const char* name;
    int64_t n, k;
  };
  // K-quants need rows of whole super-blocks.
  const int64_t hidden = format_info(format).block_values == 256 ? 512 : 576;
  const Shape shapes[] = {{"qkv", 960, hidden}, {"attention out", 576, hidden}, {"gate and up", 3072, hidden}, {"down", 576, 1536}};
  ThreadPool packers(usable_cpus());
  double pack_seconds = 0, pack_bytes = 0;
  std::vector<PackedMatrix> weights;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Shape& shape : shapes) weights.push_back(random_matrix(format, shape.n, shape.k, packers, pack_seconds, pack_bytes));
  }
  const PackedMatrix head = random_matrix(Format::Q8_0, 49152, 576, packers, pack_seconds, pack_bytes);
  std::printf("%s, %s, packed %.0f MB in %.0f ms\n", kernels.isa, format_info(format).label, pack_bytes * 1e-6, pack_seconds * 1e3);

  std::printf("%-16s threads   GB/s, 1 row  GOP/s, 8 rows       32 rows      128 rows\n", "");
  for (int threads = 1; threads <= std::max(2, usable_cpus()); threads *= 2) {
    ThreadPool pool(threads);
    const auto print = [&](const char* name, const std::vector<const PackedMatrix*>& matrices) {
      std::printf("%-16s %7d", name, threads);
      for (int64_t rows : {1, 8, 32, 128}) {
        const Speed speed = measure(kernels, matrices, rows, pool);
        std::printf("  %12.1f", rows == 1 ? speed.gigabytes : speed.gigaops);
      }
      std::printf("\n");
      std::fflush(stdout);
    };
    std::vector<const PackedMatrix*> all;
    for (const auto& w : weights) all.push_back(&w);
    print("all layers", all);
    for (size_t s = 0; s < std::size(shapes); ++s) {
      std::vector<const PackedMatrix*> same;
      for (size_t i = s; i < weights.size(); i += std::size(shapes)) same.push_back(&weights[i]);
      print(shapes[s].name, same);
    }
    print("head q8_0", {&head});
  }
}
