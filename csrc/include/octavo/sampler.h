// Choosing tokens from logits, as octavo.ops.interface.SamplingBatch defines it: one row a thread at a time.
//
// Nothing sorts a vocabulary unless nearly all of it is kept. The k most likely ids are found by a bound: with the largest
// logit of each chunk of 64 at hand, at least k logits reach the k-th largest of those, so only ids that reach it compete.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "octavo/device.h"

namespace octavo {

// octavo.ops.interface.SamplingBatch by pointer.
struct SamplingBatch {
  const float *temperature, *top_p, *min_p, *repetition_penalty, *presence_penalty, *frequency_penalty;
  const float *typical_p, *top_n_sigma, *xtc_probability, *xtc_threshold;
  const int32_t *top_k, *num_logprobs, *given;
  const bool* wants_processed;
  const uint64_t *seed, *position;
  const int32_t *banned_start, *banned_ids;
  const int32_t *bias_start, *bias_ids;
  const float* bias_values;
  const int32_t *seen_start, *seen_ids, *seen_counts;
  const int32_t *allowed_row, *allowed;  // null: every row may draw every id
  int64_t allowed_words;                 // in a row of `allowed`
};

// octavo.ops.interface.Sampled by pointer; the caller has filled it with its values for unused places.
struct Sampled {
  int32_t* token_ids;
  bool* is_nan;
  float* logprob;
  int32_t* rank;
  int64_t num_top;  // width of the next two
  int32_t* top_ids;
  float* top_logprobs;
};

struct SamplerScratch;

class Sampler {
 public:
  explicit Sampler(std::shared_ptr<Device> device);
  ~Sampler();

  // logits [rows, vocab]. Precondition: all ids lie in [0, vocab) and num_logprobs are at most num_top.
  // Calls from several threads queue.
  void sample(const float* logits, int64_t rows, int64_t vocab, const SamplingBatch& how, const Sampled& result);

 private:
  std::shared_ptr<Device> device_;
  std::mutex callers_;
  std::vector<SamplerScratch> scratch_;  // one a thread
};

}  // namespace octavo
