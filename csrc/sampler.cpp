#include "octavo/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "octavo/candidates.h"
#include "octavo/philox.h"

namespace octavo {
namespace {

constexpr float kGreedyTemperature = 1e-5f;
constexpr int64_t kFirstCandidates = 256;  // of top_p, before it is known how many it needs

struct Span {
  const int32_t* begin;
  const int32_t* end;
  bool is_empty() const { return begin == end; }
};

Span row_of(const int32_t* start, const int32_t* values, int64_t row) { return {values + start[row], values + start[row + 1]}; }

}  // namespace

struct SamplerScratch {
  std::vector<float> logits, weights, chunk_max, order_stat;
  std::vector<double> chunk_sum;
  std::vector<int32_t> ids;
  Candidates kept;

  void reserve(int64_t vocab) {
    const auto size = static_cast<size_t>(vocab), chunks = static_cast<size_t>((vocab + kSamplingChunk - 1) / kSamplingChunk);
    if (logits.size() >= size) return;
    logits.resize(size);
    weights.resize(size);
    ids.resize(size);
    kept.reserve(size);
    chunk_max.resize(chunks);
    order_stat.resize(chunks);
    chunk_sum.resize(chunks);
  }
};

namespace {

// One row on its way through the stages.
class RowSampler {
 public:
  RowSampler(const KernelTable& kernels, SamplerScratch& scratch, const float* raw, int64_t vocab, const SamplingBatch& how, int64_t row)
      : kernels_(kernels), s_(scratch), raw_(raw), logits_(raw), vocab_(vocab), how_(how), row_(row) {}

  void sample(const Sampled& result) {
    if (find_max() || !std::isfinite(max_)) {
      result.is_nan[row_] = true;
      return;
    }
    const int32_t given = how_.given[row_], token = given >= 0 ? given : choose();
    result.token_ids[row_] = token;
    if (how_.num_logprobs[row_] < 0) return;
    if (given >= 0 || !how_.wants_processed[row_]) logits_ = raw_;  // else what choose() drew from
    find_max();
    report(token, result);
  }

 private:
  int64_t chunks() const { return (vocab_ + kSamplingChunk - 1) / kSamplingChunk; }

  // Sets max_ of the logits in hand; returns whether one is NaN.
  bool find_max() {
    const bool has_nan = kernels_.chunk_maxima(logits_, vocab_, s_.chunk_max.data());
    max_ = *std::max_element(s_.chunk_max.begin(), s_.chunk_max.begin() + chunks());
    return has_nan;
  }

  int32_t first_max() const {
    const auto chunk = std::find(s_.chunk_max.begin(), s_.chunk_max.begin() + chunks(), max_) - s_.chunk_max.begin();
    int64_t id = chunk * kSamplingChunk;
    while (id + 1 < vocab_ && logits_[id] != max_) ++id;
    return static_cast<int32_t>(id);
  }

  // Sets weights and chunk_sum of the logits in hand, whose chunk_max and max_ are known. exp() is slow where it comes to nothing, which is
  // nearly everywhere when few ids are allowed.
  void weigh() {
    if (!has_empty_chunks_) {
      kernels_.exp_weights(logits_, vocab_, max_, s_.weights.data(), s_.chunk_sum.data());
      return;
    }
    for (int64_t c = 0; c < chunks(); ++c) {
      const int64_t begin = c * kSamplingChunk, count = std::min<int64_t>(kSamplingChunk, vocab_ - begin);
      float* weights = s_.weights.data() + begin;
      double* sum = s_.chunk_sum.data() + c;
      if (std::isinf(s_.chunk_max[static_cast<size_t>(c)])) {
        std::fill_n(weights, count, 0.0f);
        *sum = 0;
      } else {
        kernels_.exp_weights(logits_ + begin, count, max_, weights, sum);
      }
    }
  }

  double total_of_chunks() const {
    double total = 0;
    for (int64_t c = 0; c < chunks(); ++c) total += s_.chunk_sum[static_cast<size_t>(c)];
    return total;
  }

  // Writes the log-probabilities of the logits in hand.
  void report(int32_t token, const Sampled& result) {
    weigh();
    const double log_total = std::log(total_of_chunks());
    const auto logprob = [&](int32_t id) { return static_cast<float>(static_cast<double>(logits_[id]) - static_cast<double>(max_) - log_total); };
    const int64_t count = std::min<int64_t>(how_.num_logprobs[row_], vocab_);
    most_likely(count);
    for (int64_t i = 0; i < count; ++i) {
      const int32_t id = s_.ids[static_cast<size_t>(i)];
      if (!std::isfinite(logits_[id])) break;
      result.top_ids[row_ * result.num_top + i] = id;
      result.top_logprobs[row_ * result.num_top + i] = logprob(id);
    }
    int32_t above = 0;
    for (int64_t i = 0; i < vocab_; ++i) above += logits_[i] > logits_[token];
    result.logprob[row_] = logprob(token);
    result.rank[row_] = 1 + above;
  }

  // Puts the `count` most likely ids in hand first in ids, by falling logit, lower ids first on ties.
  void most_likely(int64_t count) {
    if (count == 0) return;
    float bound = -std::numeric_limits<float>::infinity();
    if (count <= chunks()) {
      std::copy_n(s_.chunk_max.begin(), chunks(), s_.order_stat.begin());
      const auto kth = s_.order_stat.begin() + (count - 1);
      std::nth_element(s_.order_stat.begin(), kth, s_.order_stat.begin() + chunks(), std::greater<>());
      bound = *kth;
    }
    const int64_t found = kernels_.ids_at_least(logits_, vocab_, bound, s_.ids.data());
    const auto before = [this](int32_t a, int32_t b) { return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b; };
    const auto begin = s_.ids.begin(), end = begin + std::min(count, found);
    if (end < begin + found) std::nth_element(begin, end, begin + found, before);
    std::sort(begin, end, before);
  }

  // What a row may not draw, biases and penalties, on a copy of the logits.
  bool adjust() {
    const Span banned = row_of(how_.banned_start, how_.banned_ids, row_), bias = row_of(how_.bias_start, how_.bias_ids, row_);
    Span seen = row_of(how_.seen_start, how_.seen_ids, row_);
    const float repetition = how_.repetition_penalty[row_], frequency = how_.frequency_penalty[row_], presence = how_.presence_penalty[row_];
    if (repetition == 1 && frequency == 0 && presence == 0) seen.end = seen.begin;
    const int32_t* allowed = how_.allowed_row != nullptr && how_.allowed_row[row_] >= 0 ? how_.allowed + how_.allowed_row[row_] * how_.allowed_words : nullptr;
    if (banned.is_empty() && bias.is_empty() && seen.is_empty() && allowed == nullptr) return false;
    float* logits = s_.logits.data();
    std::memcpy(logits, raw_, static_cast<size_t>(vocab_) * sizeof(float));
    if (allowed != nullptr) {
      ban_others(allowed, logits);
      has_empty_chunks_ = true;
    }
    for (const int32_t* id = banned.begin; id < banned.end; ++id) logits[*id] = -std::numeric_limits<float>::infinity();
    const float* value = how_.bias_values + how_.bias_start[row_];
    for (const int32_t* id = bias.begin; id < bias.end; ++id) logits[*id] += *value++;
    const int32_t* count = how_.seen_counts + how_.seen_start[row_];
    for (const int32_t* id = seen.begin; id < seen.end; ++id, ++count) {
      float logit = logits[*id];
      logit = logit > 0 ? logit / repetition : logit * repetition;
      logit -= frequency * static_cast<float>(*count);
      logits[*id] = *count > 0 ? logit - presence : logit;
    }
    logits_ = logits;
    return true;
  }

  // Bans the ids whose bits are 0; most words of a mask are all 0 or all 1.
  void ban_others(const int32_t* allowed, float* logits) const {
    constexpr float kBanned = -std::numeric_limits<float>::infinity();
    for (int64_t first = 0; first < vocab_; first += 32) {
      const auto bits = static_cast<uint32_t>(*allowed++);
      const int64_t count = std::min<int64_t>(32, vocab_ - first);
      if (bits == 0) {
        std::fill_n(logits + first, count, kBanned);
      } else if (bits != ~0u) {
        for (int64_t i = 0; i < count; ++i) logits[first + i] = (bits >> i & 1) != 0 ? logits[first + i] : kBanned;
      }
    }
  }

  int32_t choose() {
    if (adjust()) find_max();
    const float temperature = how_.temperature[row_];
    if (temperature < kGreedyTemperature || !std::isfinite(max_)) return first_max();
    if (temperature != 1) {
      kernels_.divide(logits_, vocab_, temperature, s_.logits.data());
      logits_ = s_.logits.data();
      find_max();
    }
    if (how_.top_n_sigma[row_] > 0) keep_within_sigmas(static_cast<double>(how_.top_n_sigma[row_]));
    const float top_p = how_.top_p[row_];
    const int64_t top_k = how_.top_k[row_];
    const double u = uniform(how_.seed[row_], how_.position[row_]);
    if (needs_list()) return draw_from_list(u);
    if (top_k > 0 && top_k < vocab_) return draw_from_top_k(top_k, top_p, u);
    weigh();
    apply_min_p();
    return top_p < 1 ? draw_from_top_p(top_p, u) : draw_from_all(u);
  }

  void keep_within_sigmas(double sigmas) {
    double count = 0, sum = 0, squares = 0;
    for (int64_t i = 0; i < vocab_; ++i) {
      if (!std::isfinite(logits_[i])) continue;
      ++count;
      sum += static_cast<double>(logits_[i]);
    }
    const double mean = sum / count;
    for (int64_t i = 0; i < vocab_; ++i) {
      const double deviation = static_cast<double>(logits_[i]) - mean;
      if (std::isfinite(deviation)) squares += deviation * deviation;
    }
    const double least = static_cast<double>(max_) - sigmas * std::sqrt(squares / count);
    float* logits = s_.logits.data();
    for (int64_t i = 0; i < vocab_; ++i) logits[i] = static_cast<double>(logits_[i]) < least ? -std::numeric_limits<float>::infinity() : logits_[i];
    logits_ = logits;
    find_max();
  }

  bool needs_list() const {
    return how_.typical_p[row_] < 1 || how_.xtc_probability[row_] > 0 || (how_.num_logprobs[row_] >= 0 && how_.wants_processed[row_]);
  }

  // The way of rows whose filters must see all candidates, or whose caller asks what was left.
  int32_t draw_from_list(double u) {
    weigh();
    apply_min_p();
    s_.kept.clear();
    const int64_t top_k = how_.top_k[row_];
    if (top_k > 0 && top_k < vocab_) {
      most_likely(top_k);
      for (int64_t i = 0; i < top_k; ++i) keep(s_.ids[static_cast<size_t>(i)]);
    } else {
      for (int64_t id = 0; id < vocab_; ++id) keep(static_cast<int32_t>(id));
    }
    if (how_.typical_p[row_] < 1) keep_typical(s_.kept, static_cast<double>(how_.typical_p[row_]));
    if (how_.top_p[row_] < 1) keep_most_likely(s_.kept, static_cast<double>(how_.top_p[row_]));
    if (uniform(how_.seed[row_], how_.position[row_], 1) < static_cast<double>(how_.xtc_probability[row_])) {
      exclude_top_choices(s_.kept, static_cast<double>(how_.xtc_threshold[row_]));
    }
    float* logits = s_.logits.data();
    std::fill_n(logits, vocab_, -std::numeric_limits<float>::infinity());
    for (const Candidate& candidate : s_.kept) logits[candidate.id] = candidate.logit;
    logits_ = logits;
    return draw(s_.kept, u);
  }

  void keep(int32_t id) {
    const float weight = s_.weights[static_cast<size_t>(id)];
    if (weight > 0) s_.kept.push_back({id, logits_[id], weight});
  }

  void apply_min_p() {
    const float min_p = how_.min_p[row_];
    if (min_p <= 0) return;
    for (int64_t c = 0; c < chunks(); ++c) {
      double total = 0;
      for (int64_t i = c * kSamplingChunk; i < std::min((c + 1) * kSamplingChunk, vocab_); ++i) {
        float& weight = s_.weights[static_cast<size_t>(i)];
        if (weight < min_p) weight = 0;
        total += static_cast<double>(weight);
      }
      s_.chunk_sum[static_cast<size_t>(c)] = total;
    }
  }

  double weight(int64_t id) const { return static_cast<double>(s_.weights[static_cast<size_t>(id)]); }

  int32_t draw_from_all(double u) const {
    const double target = u * total_of_chunks();
    double reached = 0;
    int64_t chunk = 0;
    while (chunk + 1 < chunks() && reached + s_.chunk_sum[static_cast<size_t>(chunk)] <= target) reached += s_.chunk_sum[static_cast<size_t>(chunk++)];
    int64_t last = 0;  // with a weight: rounding may carry the target up to the total
    for (int64_t id = chunk * kSamplingChunk; id < vocab_; ++id) {
      if (weight(id) == 0) continue;
      last = id;
      reached += weight(id);
      if (reached > target) return static_cast<int32_t>(id);
    }
    return last > 0 || weight(0) > 0 ? static_cast<int32_t>(last) : first_max();
  }

  // weights of all ids are computed; those below min_p are 0.
  int32_t draw_from_top_p(float top_p, double u) {
    const double needed = static_cast<double>(top_p) * total_of_chunks();
    for (int64_t candidates = std::min(kFirstCandidates, vocab_);; candidates = std::min(candidates * 16, vocab_)) {
      most_likely(candidates);
      double reached = 0;
      int64_t kept = 0;
      while (kept < candidates && reached < needed) reached += weight(s_.ids[static_cast<size_t>(kept++)]);
      if (reached < needed && candidates < vocab_) continue;
      s_.kept.clear();
      for (int64_t i = 0; i < std::max<int64_t>(kept, 1); ++i) {
        const int32_t id = s_.ids[static_cast<size_t>(i)];
        s_.kept.push_back({id, logits_[id], s_.weights[static_cast<size_t>(id)]});
      }
      return draw(s_.kept, u);
    }
  }

  int32_t draw_from_top_k(int64_t top_k, float top_p, double u) {
    most_likely(top_k);
    float* weights = s_.weights.data();  // of ids[0], ids[1], ...: they fall
    for (int64_t i = 0; i < top_k; ++i) weights[i] = logits_[s_.ids[static_cast<size_t>(i)]];
    kernels_.exp_weights(weights, top_k, max_, weights, s_.chunk_sum.data());
    int64_t kept = 0;
    double total = 0;
    while (kept < top_k && (kept == 0 || weights[kept] >= how_.min_p[row_])) total += weight(kept++);
    if (top_p < 1) {
      const double needed = static_cast<double>(top_p) * total;
      double reached = 0;
      int64_t count = 0;
      while (count < kept && reached < needed) reached += weight(count++);
      kept = std::max<int64_t>(count, 1);
    }
    s_.kept.clear();
    for (int64_t i = 0; i < kept; ++i) {
      const int32_t id = s_.ids[static_cast<size_t>(i)];
      s_.kept.push_back({id, logits_[id], weights[i]});
    }
    return draw(s_.kept, u);
  }

  const KernelTable& kernels_;
  SamplerScratch& s_;
  const float* raw_;
  const float* logits_;  // in hand: raw, or a copy on which some stages have worked
  const int64_t vocab_;
  const SamplingBatch& how_;
  const int64_t row_;
  float max_ = 0;
  bool has_empty_chunks_ = false;  // perhaps
};

}  // namespace

Sampler::Sampler(std::shared_ptr<Device> device) : device_(std::move(device)), scratch_(static_cast<size_t>(device_->pool.size())) {}
Sampler::~Sampler() = default;

void Sampler::sample(const float* logits, int64_t rows, int64_t vocab, const SamplingBatch& how, const Sampled& result) {
  std::lock_guard one_caller(callers_);
  for (SamplerScratch& scratch : scratch_) scratch.reserve(vocab);
  device_->pool.for_each(rows, [&](int64_t row, int thread) {
    RowSampler(device_->kernels, scratch_[static_cast<size_t>(thread)], logits + row * vocab, vocab, how, row).sample(result);
  });
}

}  // namespace octavo
