// pack_matrix, prepare_act, linear and embed: every format on every ISA of this machine, odd shapes, against products in
// double precision.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "gguf_blocks.h"
#include "octavo/kernels.h"
#include "octavo/thread_pool.h"

using namespace octavo;
using namespace octavo_test;

namespace {

int failures = 0;

#define CHECK(condition, ...)                                                \
  do {                                                                       \
    if (!(condition) && ++failures <= 20) {                                  \
      std::printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);            \
      std::printf(__VA_ARGS__);                                              \
      std::printf("\n");                                                     \
    }                                                                        \
  } while (0)

constexpr Format kFormats[] = {Format::F32,  Format::F16,  Format::BF16, Format::Q4_0, Format::Q4_1, Format::Q5_0,
                               Format::Q5_1, Format::Q8_0, Format::Q4_K, Format::Q5_K, Format::Q6_K};
constexpr int64_t kRows = 33;
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

bool same_bits(const float* x, const float* y, int64_t count) { return std::memcmp(x, y, static_cast<size_t>(count) * sizeof(float)) == 0; }

std::vector<float> random_floats(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (auto& value : values) value = normal(random);
  return values;
}

// What prepared rows stand for.
std::vector<float> read_act(ActKind kind, const std::vector<uint8_t>& act, int64_t rows, int64_t k) {
  std::vector<float> values(static_cast<size_t>(rows * k));
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* row = act.data() + static_cast<size_t>(r) * act_row_bytes(kind, k);
    for (int64_t i = 0; i < k; ++i) {
      float& value = values[static_cast<size_t>(r * k + i)];
      if (kind == ActKind::F32) std::memcpy(&value, row + 4 * i, 4);
      if (kind == ActKind::BF16) dequantise_block(Format::BF16, row + 2 * i, &value);
      if (kind == ActKind::Q8) {
        ActGroup group;
        std::memcpy(&group, row + i / 32 * static_cast<int64_t>(sizeof group), sizeof group);
        value = group.scale * static_cast<float>(group.quants[i % 32]);
      }
    }
  }
  return values;
}

struct Case {
  const KernelTable& kernels;
  Format format;
  int64_t n, k;

  std::string name() const {
    return std::string(kernels.isa) + " " + format_info(format).label + " [" + std::to_string(n) + ", " + std::to_string(k) + "]";
  }
};

std::vector<uint8_t> prepare(const Case& c, ActKind kind, const std::vector<float>& x, int64_t rows) {
  std::vector<uint8_t> act(static_cast<size_t>(rows) * act_row_bytes(kind, c.k), 0xff);
  c.kernels.prepare_act(kind, x.data(), c.k, rows, c.k, act.data());
  return act;
}

// linear over all panels, into poisoned memory with three columns of margin.
std::vector<float> multiply(const Case& c, const PackedMatrix& w, const uint8_t* act, int64_t rows) {
  const int64_t ldo = c.n + 3;
  std::vector<float> out(static_cast<size_t>(rows * ldo), kPoison), result;
  c.kernels.linear(w, act, rows, nullptr, nullptr, out.data(), ldo, 0, w.panels());
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = out.data() + r * ldo;
    for (int64_t i = c.n; i < ldo; ++i) CHECK(same_bits(row + i, &kPoison, 1), "%s wrote past row %ld", c.name().c_str(), r);
    result.insert(result.end(), row, row + c.n);
  }
  return result;
}

// Of a weight, where it is rounded to bf16 for the product, and not only the row: see linear_widened.inc.
constexpr double kWeightError = 0.0052;

bool is_weight_rounded(const Case& c) { return is_quantised(c.format) && c.kernels.quantised_act == ActKind::BF16; }

void check_values(const Case& c, ActKind kind, const std::vector<float>& weights, const std::vector<float>& x, const std::vector<float>& prepared,
                  const std::vector<float>& out) {
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t channel = 0; channel < c.n; ++channel) {
      const float *w = &weights[static_cast<size_t>(channel * c.k)], *raw = &x[static_cast<size_t>(r * c.k)],
                  *rounded = &prepared[static_cast<size_t>(r * c.k)];
      double of_raw = 0, of_rounded = 0, magnitude = 0, w_squares = 0, x_squares = 0;
      for (int64_t i = 0; i < c.k; ++i) {
        of_raw += static_cast<double>(w[i]) * raw[i];
        of_rounded += static_cast<double>(w[i]) * rounded[i];
        magnitude += std::abs(static_cast<double>(w[i]) * rounded[i]);
        w_squares += static_cast<double>(w[i]) * w[i];
        x_squares += static_cast<double>(raw[i]) * raw[i];
      }
      const double value = out[static_cast<size_t>(r * c.n + channel)];
      const double exact = is_weight_rounded(c) ? kWeightError * magnitude + 1e-4 * std::sqrt(w_squares * x_squares) : 1e-5 * magnitude;
      CHECK(std::abs(value - of_rounded) <= exact + 1e-30, "%s row %ld channel %ld: %.9g, of prepared rows %.9g", c.name().c_str(), r,
            channel, value, of_rounded);
      const double loose = kind == ActKind::Q8 ? 0.01 * std::sqrt(w_squares * x_squares) : kind == ActKind::BF16 ? magnitude / 256 : 1e-5 * magnitude;
      CHECK(std::abs(value - of_raw) <= loose + exact + 1e-30, "%s row %ld channel %ld: %.9g, of raw rows %.9g", c.name().c_str(), r, channel, value, of_raw);
    }
  }
}

void check_rows_alone_and_in_batches(const Case& c, const PackedMatrix& w, const std::vector<uint8_t>& act, const std::vector<float>& out) {
  const size_t stride = act_row_bytes(w.act, c.k);
  for (int64_t rows : {1, 2, 3, 5, 7, 8, 13}) {
    for (int64_t first = 0; first + rows <= kRows; first += rows == 1 ? 1 : 10) {
      const std::vector<float> part = multiply(c, w, act.data() + static_cast<size_t>(first) * stride, rows);
      CHECK(same_bits(part.data(), &out[static_cast<size_t>(first * c.n)], rows * c.n), "%s: %ld rows from row %ld differ from the same in %ld",
            c.name().c_str(), rows, first, kRows);
    }
  }
}

void check_cuts_bias_and_residual(const Case& c, const PackedMatrix& w, const std::vector<uint8_t>& act, const std::vector<float>& out,
                                  std::mt19937& random) {
  const std::vector<float> bias = random_floats(c.n, random), residual = random_floats(kRows * c.n, random);
  std::vector<float> in_place = residual, apart(residual.size(), kPoison), expected = out;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = (expected[i] + bias[i % static_cast<size_t>(c.n)]) + residual[i];
  for (int64_t p = 0; p < w.panels(); p += 3) {
    const int64_t end = std::min(p + 3, w.panels());
    c.kernels.linear(w, act.data(), kRows, bias.data(), in_place.data(), in_place.data(), c.n, p, end);
    c.kernels.linear(w, act.data(), kRows, bias.data(), residual.data(), apart.data(), c.n, p, end);
  }
  CHECK(same_bits(in_place.data(), expected.data(), kRows * c.n), "%s: cut panels, residual in place", c.name().c_str());
  CHECK(same_bits(apart.data(), expected.data(), kRows * c.n), "%s: cut panels, residual apart", c.name().c_str());
}

void check_bad_rows_are_nan(const Case& c, const PackedMatrix& w, std::vector<float> x, const std::vector<float>& out) {
  x[static_cast<size_t>(3 * c.k + c.k / 2)] = std::numeric_limits<float>::quiet_NaN();
  x[static_cast<size_t>(9 * c.k)] = -std::numeric_limits<float>::infinity();
  x[static_cast<size_t>(32 * c.k + c.k - 1)] = std::numeric_limits<float>::infinity();
  const std::vector<float> bad = multiply(c, w, prepare(c, w.act, x, kRows).data(), kRows);
  for (int64_t r = 0; r < kRows; ++r) {
    const float* row = &bad[static_cast<size_t>(r * c.n)];
    if (r == 3 || r == 9 || r == 32) {
      for (int64_t i = 0; i < c.n; ++i) CHECK(std::isnan(row[i]), "%s row %ld channel %ld: %g", c.name().c_str(), r, i, row[i]);
    } else {
      CHECK(same_bits(row, &out[static_cast<size_t>(r * c.n)], c.n), "%s: row %ld changed with its neighbours", c.name().c_str(), r);
    }
  }
}

void check_embed(const Case& c, const PackedMatrix& w, const std::vector<float>& weights) {
  const std::vector<int32_t> ids = {static_cast<int32_t>(c.n - 1), 0, static_cast<int32_t>(c.n / 2), 0};
  const int64_t ldo = c.k + 2;
  std::vector<float> out(ids.size() * static_cast<size_t>(ldo), kPoison);
  c.kernels.embed(w, ids.data(), static_cast<int64_t>(ids.size()), out.data(), ldo);
  for (size_t i = 0; i < ids.size(); ++i) {
    const float* row = &out[i * static_cast<size_t>(ldo)];
    for (int64_t j = 0; j < c.k; ++j) {
      const float expected = weights[static_cast<size_t>(ids[i] * c.k + j)];
      CHECK(row[j] == expected, "%s row %d value %ld: %.9g, file says %.9g", c.name().c_str(), ids[i], j, row[j], expected);
    }
    CHECK(same_bits(row + c.k, &kPoison, 1), "%s: embed wrote past a row", c.name().c_str());
  }
}

void check_case(const Case& c, ThreadPool& pool) {
  std::mt19937 random(static_cast<unsigned>(c.n * 10'007 + c.k));
  const std::vector<uint8_t> bytes = random_blocks(c.format, c.n * c.k, random);
  const std::vector<float> weights = dequantise(c.format, bytes), x = random_floats(kRows * c.k, random);
  const PackedMatrix w = pack_matrix(c.format, c.n, c.k, bytes.data(), bytes.size(), c.kernels.quantised_act, pool);
  const std::vector<uint8_t> act = prepare(c, w.act, x, kRows);
  const std::vector<float> out = multiply(c, w, act.data(), kRows);
  check_values(c, w.act, weights, x, read_act(w.act, act, kRows, c.k), out);
  check_rows_alone_and_in_batches(c, w, act, out);
  check_cuts_bias_and_residual(c, w, act, out, random);
  check_bad_rows_are_nan(c, w, x, out);
  check_embed(c, w, weights);
}

// Products with unit rows are the weights as the product takes them: each as near as promised, and no drift in their mean.
void check_weights_of_unit_rows(const Case& c, ThreadPool& pool) {
  std::mt19937 random(3);
  const std::vector<uint8_t> bytes = random_blocks(c.format, c.n * c.k, random);
  const std::vector<float> weights = dequantise(c.format, bytes);
  const PackedMatrix w = pack_matrix(c.format, c.n, c.k, bytes.data(), bytes.size(), c.kernels.quantised_act, pool);
  std::vector<float> x(static_cast<size_t>(c.k * c.k));
  for (int64_t i = 0; i < c.k; ++i) x[static_cast<size_t>(i * c.k + i)] = 1;
  const std::vector<float> out = multiply(c, w, prepare(c, w.act, x, c.k).data(), c.k);
  double drift = 0, magnitude = 0, squares = 0;
  for (float weight : weights) squares += static_cast<double>(weight) * weight / static_cast<double>(weights.size());
  for (int64_t channel = 0; channel < c.n; ++channel) {
    for (int64_t i = 0; i < c.k; ++i) {
      const double weight = weights[static_cast<size_t>(channel * c.k + i)], value = out[static_cast<size_t>(i * c.n + channel)];
      const double error = is_weight_rounded(c) ? kWeightError : c.kernels.quantised_act == ActKind::Q8 ? 1e-5 : 0;
      CHECK(std::abs(value - weight) <= error * std::abs(weight) + 2e-4 * std::sqrt(squares), "%s: weight [%ld, %ld] %.9g became %.9g", c.name().c_str(), channel,
            i, weight, value);
      drift += weight < 0 ? weight - value : value - weight;
      magnitude += std::abs(weight);
    }
  }
  CHECK(std::abs(drift) <= 3e-4 * magnitude, "%s: weights drift by %.3g", c.name().c_str(), drift / magnitude);
}

// The most negative sums that the formats allow must not overflow: all weights and activations at an end of their range.
void check_extremes(const KernelTable& kernels, Format format, ThreadPool& pool) {
  const Case c{kernels, format, 17, 512};
  std::mt19937 random(5);
  for (uint8_t fill : {0x00, 0xff, 0x80, 0x7f}) {
    std::vector<uint8_t> bytes = random_blocks(format, c.n * c.k, random);
    const auto block_bytes = static_cast<size_t>(format_info(format).block_bytes);
    const size_t header = format == Format::Q8_0 || format == Format::Q4_0 || format == Format::Q5_0 ? 2 : format == Format::Q6_K ? 0 : 4;
    const size_t end = format == Format::Q6_K ? 208 : block_bytes;
    for (size_t at = 0; at < bytes.size(); at += block_bytes) std::memset(&bytes[at + header], fill, end - header);
    const std::vector<float> weights = dequantise(format, bytes);
    for (float sign : {1.0f, -1.0f}) {
      const std::vector<float> x(static_cast<size_t>(kRows * c.k), sign);
      const PackedMatrix w = pack_matrix(format, c.n, c.k, bytes.data(), bytes.size(), c.kernels.quantised_act, pool);
      const std::vector<uint8_t> act = prepare(c, w.act, x, kRows);
      check_values(c, w.act, weights, x, read_act(w.act, act, kRows, c.k), multiply(c, w, act.data(), kRows));
    }
  }
}

// Rows of zeros, of tiny values and of huge ones are rounded without trouble, and to nearest even where bf16 ties.
void check_prepare(const KernelTable& kernels) {
  const int64_t k = 64;
  for (float size : {0.0f, 1e-42f, 1e-37f, 1e-20f, 1e20f, 3e38f}) {
    const Case c{kernels, Format::Q8_0, 1, k};
    std::vector<float> x(k);
    for (int64_t i = 0; i < k; ++i) x[static_cast<size_t>(i)] = size * (static_cast<float>(i - 31) / 32.0f);
    for (ActKind kind : {ActKind::F32, ActKind::BF16, ActKind::Q8}) {
      const std::vector<float> read = read_act(kind, prepare(c, kind, x, 1), 1, k);
      const double step = kind == ActKind::F32 ? 0 : size / 250.0 + 1e-29;
      for (size_t i = 0; i < read.size(); ++i) {
        CHECK(std::abs(static_cast<double>(read[i]) - x[i]) <= step, "%s kind %d: %g became %g", kernels.isa, static_cast<int>(kind), x[i], read[i]);
      }
    }
  }
  const Case c{kernels, Format::BF16, 1, 3};
  const std::vector<float> ties = {1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, -(1.0f + 0x1p-8f)};
  const std::vector<float> read = read_act(ActKind::BF16, prepare(c, ActKind::BF16, ties, 1), 1, 3);
  CHECK(read[0] == 1.0f && read[1] == 1.0f + 4 * 0x1p-8f && read[2] == -1.0f, "%s: %g %g %g", kernels.isa, read[0], read[1], read[2]);
}

// Gated products in one have the bits of the two products, gated and prepare one after another; an infinity of the row is NaN in both.
void check_gated(const KernelTable& kernels, Format format, ThreadPool& pool) {
  const ActKind kind = kernels.quantised_act;
  if (act_kind(format, kind) != kind) return;
  const Case c{kernels, format, kind == ActKind::BF16 ? 80 : 96, 512};
  std::mt19937 random(9);
  const auto matrix = [&] {
    const std::vector<uint8_t> bytes = random_blocks(format, c.n * c.k, random);
    return pack_matrix(format, c.n, c.k, bytes.data(), bytes.size(), kernels.quantised_act, pool);
  };
  const PackedMatrix gate = matrix(), up = matrix();
  std::normal_distribution<float> normal;
  for (int64_t rows : {1, 7, 16, 17, 32, 33, 70, 300}) {
    std::vector<float> x(static_cast<size_t>(rows * c.k));
    for (float& value : x) value = normal(random);
    x[static_cast<size_t>(c.k * (rows / 2))] = std::numeric_limits<float>::infinity();
    const std::vector<uint8_t> act = prepare(c, gate.act, x, rows);
    const std::vector<float> a = multiply(c, gate, act.data(), rows), b = multiply(c, up, act.data(), rows);
    for (Activation activation : {Activation::Silu, Activation::GeluTanh}) {
      std::vector<float> product(a.size());
      kernels.gated(activation, a.data(), c.n, b.data(), c.n, rows, c.n, product.data(), c.n);
      const auto stride = static_cast<int64_t>(act_row_bytes(kind, c.n));
      std::vector<uint8_t> expected(static_cast<size_t>(rows * stride)), fused(expected.size());
      kernels.prepare_act(kind, product.data(), c.n, rows, c.n, expected.data());
      for (int64_t panel = 0; panel < gate.panels(); panel += 2) {
        kernels.gated_linear(gate, up, activation, act.data(), rows, fused.data(), panel, std::min(panel + 2, gate.panels()));
      }
      CHECK(fused == expected, "%s: gated products of %ld rows differ", c.name().c_str(), rows);
    }
  }
}

void check_refusals(ThreadPool& pool) {
  const std::vector<uint8_t> bytes(1 << 12);
  const auto refuses = [&](Format format, int64_t n, int64_t k, size_t size) {
    try {
      pack_matrix(format, n, k, bytes.data(), size, ActKind::Q8, pool);
      return false;
    } catch (const std::invalid_argument&) {
      return true;
    }
  };
  CHECK(refuses(Format::Q4_1, 1, 33, 20), "k is no multiple of the block");
  CHECK(refuses(Format::Q4_K, 1, 32, 18), "k is no multiple of the super-block");
  CHECK(refuses(Format::Q4_1, 2, 32, 20), "too few bytes");
  CHECK(refuses(Format::Q4_1, 1, 32, 21), "too many bytes");
  CHECK(refuses(Format::F32, 0, 4, 0), "no rows");
  CHECK(refuses(Format::F32, 1, -4, 16), "negative k");
  CHECK(refuses(Format::F32, int64_t{1} << 62, 4, 0), "sizes past 64 bits that wrap to 0");
}

}  // namespace

int main() {
  ThreadPool pool(2);
  check_refusals(pool);
  for (Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    const KernelTable& kernels = kernel_table(isa);
    check_prepare(kernels);
    for (Format format : kFormats) {
      const int64_t block = format_info(format).block_values;
      for (int64_t n : {1, 15, 16, 17, 31}) {
        for (int64_t k : {block, 3 * block}) check_case({kernels, format, n, k}, pool);
      }
      check_case({kernels, format, 31, 1536}, pool);
      check_gated(kernels, format, pool);
      check_case({kernels, format, 576, block == 256 ? 512 : 576}, pool);
      if (is_quantised(format)) {
        check_extremes(kernels, format, pool);
        check_weights_of_unit_rows({kernels, format, 64, 256}, pool);
      } else {
        check_case({kernels, format, 17, 577}, pool);
      }
    }
    std::printf("%s: %s\n", kernels.isa, failures ? "failed" : "ok");
  }
  return failures != 0;
}
