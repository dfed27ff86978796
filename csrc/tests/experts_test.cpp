// Mixtures of experts on every ISA of this machine against sums in double precision; and the promise, bit for bit: a row alone, among
// others and on any number of threads.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "octavo/device.h"
#include "octavo/eager.h"

using namespace octavo;

namespace {

constexpr int64_t kExperts = 6, kPicks = 2, kHidden = 48, kInner = 32, kRows = 23;
int failures = 0;

std::vector<float> random_floats(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

struct Inputs {
  std::vector<float> gate = random_floats(kExperts * kInner * kHidden, 1), up = random_floats(kExperts * kInner * kHidden, 2);
  std::vector<float> down = random_floats(kExperts * kHidden * kInner, 3), x = random_floats(kRows * kHidden, 4);
  std::vector<float> weights = std::vector<float>(static_cast<size_t>(kRows * kExperts));

  Inputs() {
    const std::vector<float> logits = random_floats(kRows * kExperts, 5);
    const Routing routing{kExperts, kPicks, true, 3, 2, true, true, 2.5f};
    for (int64_t r = 0; r < kRows; ++r) route_row(routing, logits.data() + r * kExperts, nullptr, weights.data() + r * kExperts);
  }
};

std::vector<float> run(const Inputs& in, Isa isa, int threads, int64_t start, int64_t rows) {
  Device device(threads, isa);
  const auto pack = [&](const std::vector<float>& values, int64_t k) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    return pack_matrix(Format::F32, static_cast<int64_t>(values.size()) / k, k, bytes, values.size() * 4, device.kernels.quantised_act, device.pool);
  };
  const Experts experts = make_experts(pack(in.gate, kHidden), pack(in.up, kHidden), pack(in.down, kInner), kExperts, kPicks, Activation::Relu);
  std::vector<float> out(static_cast<size_t>(rows * kHidden), NAN);
  eager::experts(device, experts, in.x.data() + start * kHidden, in.weights.data() + start * kExperts, rows, out.data());
  return out;
}

double dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

void check_row(const Inputs& in, const std::vector<float>& out, int64_t r) {
  const float* x = in.x.data() + r * kHidden;
  std::vector<double> expected(kHidden, 0);
  for (int64_t e = 0; e < kExperts; ++e) {
    std::vector<float> inner(kInner);
    for (int64_t i = 0; i < kInner; ++i) {
      const int64_t row = (e * kInner + i) * kHidden;
      const double gate = dot(in.gate.data() + row, x, kHidden);
      inner[static_cast<size_t>(i)] = static_cast<float>(std::max(gate, 0.0) * dot(in.up.data() + row, x, kHidden));
    }
    for (int64_t d = 0; d < kHidden; ++d) {
      expected[static_cast<size_t>(d)] +=
          static_cast<double>(in.weights[static_cast<size_t>(r * kExperts + e)]) * dot(in.down.data() + (e * kHidden + d) * kInner, inner.data(), kInner);
    }
  }
  for (int64_t d = 0; d < kHidden; ++d) {
    if (!(std::abs(expected[static_cast<size_t>(d)] - static_cast<double>(out[static_cast<size_t>(r * kHidden + d)])) < 2e-2)) {
      std::printf("row %ld differs at %ld\n", static_cast<long>(r), static_cast<long>(d));
      ++failures;
      return;
    }
  }
}

}  // namespace

int main() {
  const Inputs in;
  for (Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    const std::vector<float> whole = run(in, isa, 1, 0, kRows);
    for (int64_t r = 0; r < kRows; ++r) check_row(in, whole, r);
    for (int threads : {1, 3}) {
      for (int64_t size : {int64_t{1}, int64_t{5}, kRows}) {
        for (int64_t start = 0; start < kRows; start += size) {
          const int64_t rows = std::min(size, kRows - start);
          const std::vector<float> part = run(in, isa, threads, start, rows);
          if (std::memcmp(part.data(), whole.data() + start * kHidden, part.size() * 4) != 0) {
            std::printf("%s: rows %ld.. have other bits among %ld on %d threads\n", kernel_table(isa).isa, static_cast<long>(start), static_cast<long>(rows), threads);
            ++failures;
          }
        }
      }
    }
    std::printf("%s: %s\n", kernel_table(isa).isa, failures ? "failed" : "ok");
  }
  return failures != 0;
}
