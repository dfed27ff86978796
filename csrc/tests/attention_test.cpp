// Attention on every ISA of this machine against softmax in double precision, over blocks in random order whose unused slots
// hold NaN; and the promise, bit for bit: a row alone, in chunks of any size, and over split contexts.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "octavo/attention_plan.h"
#include "octavo/device.h"
#include "octavo/eager.h"

using namespace octavo;

namespace {

int failures = 0;

struct Case {
  KvType type;
  int64_t kv_heads, group, head_dim, length, window, block_size;
  int64_t rotary_dim = 0;  // of latent attention
  bool has_infinity = false;  // one position's V, which the rows before it must not feel
  float q_scale = 1;          // large: scores lie far apart

  int64_t v_dim() const { return rotary_dim > 0 ? rotary_dim : head_dim; }  // what store_kv takes beside K
};

std::vector<float> random_floats(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (auto& value : values) value = normal(random);
  return values;
}

// What the cache keeps of a vector's value x; largest: the vector's largest magnitude.
float rounded(float x, float largest, KvType type) {
  if (type == KvType::Int8) return std::nearbyint(x / (largest / 127.0f)) * (largest / 127.0f);
  if (type == KvType::Fp8E4M3) {  // 4 significant bits down to 2^-6, then steps of 2^-9
    const float step = std::ldexp(1.0f, std::max(std::ilogb(x), -6) - 3);
    return std::nearbyint(x / step) * step;
  }
  if (type == KvType::F32) return x;
  if (type == KvType::F16) {  // 11 significant bits down to 2^-14, then steps of 2^-24
    const float step = std::ldexp(1.0f, std::max(std::ilogb(x), -14) - 10);
    return std::nearbyint(x / step) * step;
  }
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  std::memcpy(&x, &bits, 4);
  return x;
}

class AttentionCase {
 public:
  AttentionCase(const Case& c, Isa isa) : c_(c), isa_(isa), alone_(1, isa), shared_(3, isa), random_(1), memory_(shape()) {
    const int64_t width = c.kv_heads * c.head_dim, blocks = (c.length + c.block_size - 1) / c.block_size;
    table_.resize(static_cast<size_t>(blocks));
    std::iota(table_.begin(), table_.end(), 1);
    std::shuffle(table_.begin(), table_.end(), random_);
    q_ = random_floats(c.length * width * c.group, random_);
    k_ = random_floats(c.length * width, random_);
    v_ = random_floats(c.length * c.kv_heads * c.v_dim(), random_);
    for (float& q : q_) q *= c.q_scale;
    q_rotary_ = random_floats(c.length * c.group * c.rotary_dim, random_);
    if (c.has_infinity) v_[static_cast<size_t>(c.length * 2 / 3 * width + 1)] = std::numeric_limits<float>::infinity();
    const std::vector<float> poison(static_cast<size_t>(width), std::numeric_limits<float>::quiet_NaN());
    for (int64_t slot = 0; slot < memory_.cache().num_blocks * c.block_size; ++slot) {
      eager::store_kv(alone_, memory_.cache(), 0, poison.data(), poison.data(), 1, &slot);
    }
    slots_.resize(static_cast<size_t>(c.length));
    for (int64_t p = 0; p < c.length; ++p) slots_[static_cast<size_t>(p)] = table_[static_cast<size_t>(p / c.block_size)] * c.block_size + p % c.block_size;
    eager::store_kv(alone_, memory_.cache(), 0, k_.data(), v_.data(), c.length, slots_.data());
  }

  void check() {
    const std::vector<float> whole = run(alone_, 0, c_.length);
    for (int64_t p : {int64_t{0}, c_.length / 2, c_.has_infinity ? c_.length * 2 / 3 - 1 : c_.length - 1}) check_against_double(whole, p);
    for (int64_t size : {1, 5, 33}) {
      std::vector<float> parts;
      for (int64_t start = 0; start < c_.length; start += size) {
        const std::vector<float> part = run(shared_, start, std::min(size, c_.length - start));
        parts.insert(parts.end(), part.begin(), part.end());
      }
      if (std::memcmp(parts.data(), whole.data(), whole.size() * 4) != 0) fail("chunks differ", size);
    }
    check_shared_prefixes(whole);
  }

 private:
  // The same context in several rows of a step, at different lengths: segments that they have in common are taken for all of them.
  void check_shared_prefixes(const std::vector<float>& whole) {
    const int64_t width = c_.kv_heads * c_.group * c_.head_dim;
    std::vector<int64_t> places;
    for (int64_t i = 0; i < 9; ++i) places.push_back(c_.length - 1 - i * 11 % c_.length);
    std::vector<float> q, q_rotary;
    for (const int64_t p : places) {
      q.insert(q.end(), q_.begin() + p * width, q_.begin() + (p + 1) * width);
      const int64_t rotary = c_.group * c_.rotary_dim;
      q_rotary.insert(q_rotary.end(), q_rotary_.begin() + p * rotary, q_rotary_.begin() + (p + 1) * rotary);
    }
    for (Device* device : {&alone_, &shared_}) {
      const std::vector<float> out = run(*device, places, q, q_rotary);
      for (size_t i = 0; i < places.size(); ++i) {
        const auto values = static_cast<size_t>(width);
        if (std::memcmp(out.data() + i * values, whole.data() + static_cast<size_t>(places[i]) * values, values * 4) != 0) fail("shared prefixes differ", places[i]);
      }
    }
  }

  KvCache shape() const {
    KvCache kv;
    kv.type = c_.type;
    kv.num_layers = 1;
    kv.num_kv_heads = c_.kv_heads;
    kv.head_dim = c_.head_dim;
    kv.rotary_dim = c_.rotary_dim;
    kv.block_size = c_.block_size;
    kv.num_blocks = 2 + c_.length / c_.block_size;
    return kv;
  }

  // One row: positions start .. start + count - 1.
  std::vector<float> run(Device& device, int64_t start, int64_t count) {
    const int64_t width = c_.kv_heads * c_.group * c_.head_dim, rotary = c_.group * c_.rotary_dim;
    std::vector<int32_t> positions(static_cast<size_t>(count));
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(start));
    return run(device, positions, {0, static_cast<int32_t>(count)}, q_.data() + start * width, q_rotary_.data() + start * rotary);
  }

  // A row of one token for each place.
  std::vector<float> run(Device& device, const std::vector<int64_t>& places, const std::vector<float>& q, const std::vector<float>& q_rotary) {
    std::vector<int32_t> query_start(places.size() + 1);
    std::iota(query_start.begin(), query_start.end(), 0);
    return run(device, {places.begin(), places.end()}, query_start, q.data(), q_rotary.data());
  }

  std::vector<float> run(Device& device, const std::vector<int32_t>& positions, const std::vector<int32_t>& query_start, const float* q, const float* q_rotary) {
    const size_t count = positions.size(), rows = query_start.size() - 1;
    std::vector<int32_t> ids(count), context_len, table;
    std::vector<int64_t> slots;
    for (const int32_t p : positions) slots.push_back(slots_[static_cast<size_t>(p)]);
    for (size_t r = 0; r < rows; ++r) {
      context_len.push_back(positions[static_cast<size_t>(query_start[r + 1]) - 1] + 1);
      table.insert(table.end(), table_.begin(), table_.end());
    }
    Batch batch;
    batch.num_tokens = static_cast<int64_t>(count);
    batch.num_rows = static_cast<int64_t>(rows);
    batch.table_width = static_cast<int64_t>(table_.size());
    batch.token_ids = ids.data();
    batch.positions = positions.data();
    batch.query_start = query_start.data();
    batch.context_len = context_len.data();
    batch.block_table = table.data();
    batch.slot_mapping = slots.data();
    check_batch(batch, memory_.cache());
    std::vector<float> out(count * static_cast<size_t>(c_.kv_heads * c_.group * c_.head_dim), std::numeric_limits<float>::quiet_NaN());
    eager::attention(device, memory_.cache(), 0, batch, c_.group, q, c_.rotary_dim > 0 ? q_rotary : nullptr, 0.2f, c_.window, INT64_MAX, out.data());
    return out;
  }

  double kept(const std::vector<float>& values, int64_t position, int64_t kv_head, int64_t d, int64_t dim) const {
    const float* vector = values.data() + (position * c_.kv_heads + kv_head) * dim;
    float largest = 0;
    for (int64_t i = 0; i < dim; ++i) largest = std::max(largest, std::abs(vector[i]));
    return static_cast<double>(rounded(vector[d], largest, c_.type));
  }

  // Tiles take queries and weights in bf16.
  bool takes_tiles() const { return isa_ == Isa::Amx && c_.type != KvType::F16 && c_.type != KvType::F32; }

  // A query's value in units of the softmax's exponent.
  double scaled(float q) const {
    constexpr float scale = 0.2f * 1.44269504088896341f;
    return takes_tiles() ? static_cast<double>(rounded(q * scale, 0, KvType::BF16)) / 1.44269504088896341 : 0.2 * static_cast<double>(q);
  }

  void check_against_double(const std::vector<float>& out, int64_t p) {
    const int64_t width = c_.kv_heads * c_.group * c_.head_dim;
    const int64_t first = p >= c_.window ? p - c_.window + 1 : 0;
    for (int64_t h = 0; h < c_.kv_heads * c_.group; ++h) {
      const int64_t kv_head = h / c_.group;
      std::vector<double> weights;
      double top = -1e300, total = 0;
      for (int64_t i = first; i <= p; ++i) {
        double score = 0;
        for (int64_t d = 0; d < c_.head_dim; ++d) {
          score += scaled(q_[static_cast<size_t>(p * width + h * c_.head_dim + d)]) * kept(k_, i, kv_head, d, c_.head_dim);
        }
        for (int64_t d = 0; d < c_.rotary_dim; ++d) {
          score += scaled(q_rotary_[static_cast<size_t>((p * c_.group + h) * c_.rotary_dim + d)]) * kept(v_, i, kv_head, d, c_.rotary_dim);
        }
        weights.push_back(score);
        top = std::max(top, weights.back());
      }
      for (double& weight : weights) total += weight = std::exp(weight - top);
      for (int64_t d = 0; d < c_.head_dim; ++d) {
        double expected = 0, magnitude = 0;
        for (int64_t i = first; i <= p; ++i) {
          const double part = weights[static_cast<size_t>(i - first)] / total * kept(c_.rotary_dim > 0 ? k_ : v_, i, kv_head, d, c_.head_dim);
          expected += part;
          magnitude += std::abs(part);
        }
        const double error = std::abs(expected - static_cast<double>(out[static_cast<size_t>(p * width + h * c_.head_dim + d)]));
        constexpr double kRounding = 1.0 / 256 + 2.2e-4;  // of a weight, and of its power of two
        if (!(error < 2e-5 + (takes_tiles() ? kRounding * magnitude : 0))) return fail("error", p);
      }
    }
  }

  void fail(const char* what, int64_t where) {
    std::printf("%s: %s at %ld: head_dim %ld group %ld length %ld window %ld\n", kernel_table(isa_).isa, what, static_cast<long>(where),
                static_cast<long>(c_.head_dim), static_cast<long>(c_.group), static_cast<long>(c_.length), static_cast<long>(c_.window));
    ++failures;
  }

  const Case c_;
  const Isa isa_;
  Device alone_, shared_;
  std::mt19937 random_;
  KvMemory memory_;
  std::vector<int64_t> table_, slots_;
  std::vector<float> q_, k_, v_, q_rotary_;
};

}  // namespace

int main() {
  constexpr int64_t all = std::numeric_limits<int64_t>::max();
  for (Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    for (KvType type : {KvType::F16, KvType::BF16, KvType::F32, KvType::Fp8E4M3, KvType::Int8}) {
      for (const Case& c : {Case{type, 2, 3, 64, 290, all, 16}, Case{type, 1, 3, 16, 560, all, 16}, Case{type, 1, 1, 16, 300, 290, 64},
                            Case{type, 1, 1, 6, 37, all, 16}, Case{type, 1, 16, 80, 49, all, 32}, Case{type, 1, 32, 16, 40, all, 16},
                            Case{type, 1, 2, 512, 33, all, 16}, Case{type, 1, 2, 20, 300, 41, 16}, Case{type, 1, 1, 64, 40, 1, 64}}) {
        AttentionCase(c, isa).check();
      }
      if (type == KvType::F16 || type == KvType::BF16 || type == KvType::F32) AttentionCase({type, 1, 3, 64, 60, all, 16, 0, true}, isa).check();
      if (type == KvType::BF16) AttentionCase({type, 1, 3, 64, 600, all, 16, 0, false, 30}, isa).check();
      // So far that weights over the first level of tiles leave float32.
      if (type == KvType::BF16 && isa == Isa::Amx) AttentionCase({type, 1, 3, 64, 600, all, 16, 0, false, 200}, isa).check();
      if (type == KvType::Int8) continue;
      for (const Case& c : {Case{type, 1, 3, 34, 290, all, 16, 6}, Case{type, 1, 100, 16, 40, all, 32, 2}, Case{type, 1, 2, 512, 33, all, 16, 128}}) {
        AttentionCase(c, isa).check();
      }
    }
    std::printf("%s: %s\n", kernel_table(isa).isa, failures ? "failed" : "ok");
  }
  return failures != 0;
}
