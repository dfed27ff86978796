// The table of kernels that each ISA fills (csrc/kernels/table.cpp, compiled once an ISA). All are single-threaded over
// the range that they are given; the caller cuts the work. Every row's arithmetic is fixed: it does not depend on the other
// rows of the call nor on how the work was cut.
#pragma once

#include <cstdint>

#include "octavo/kv_cache.h"
#include "octavo/packed.h"

namespace octavo {

enum class Activation : uint8_t { Silu, Gelu, GeluTanh, Relu, Tanh };  // Gelu: with erf

// A segment is 256 positions of the context, cut at multiples of 256. A query's softmax is taken segment by segment and the
// parts are folded in order, always, so its bits are the same whoever computes the segments.
constexpr int64_t kSegment = 256;

// Query vectors (rows x query heads of one KV head) that one attention call takes at most. Each K and V that is read is widened
// once for all of them.
constexpr int64_t kMaxVectors = 96;
constexpr int64_t kMaxHeadDim = 512;
constexpr int64_t kMaxRotaryDim = 128;  // of latent attention
constexpr int64_t kMaxKeyDim = kMaxHeadDim + kMaxRotaryDim;

// Query rows and consecutive query heads that read one KV head: consecutive rows of one request, or rows of several requests that read the
// same blocks.
struct AttentionRows {
  int64_t layer, kv_head;
  const float* q;         // row 0 of [rows, heads * head_dim], ldq floats apart
  int64_t ldq;
  const float* q_rotary;  // of latent attention: row 0 of [rows, heads * rotary_dim], ldq_rotary floats apart
  int64_t ldq_rotary;
  int64_t head;   // the first query head
  int64_t group;  // query heads; rows * group <= kMaxVectors
  int64_t rows;
  int64_t start;  // position of row 0
  const int32_t* tokens = nullptr;  // of several requests: where each row lies behind q; all then count as at position `start`. Null: one after another
  const int32_t* block_table;
  float scale;
  int64_t window;  // positions that a row sees, itself included; INT64_MAX: all
  int64_t chunk;   // a row sees no position before its own chunk of so many; INT64_MAX: there is one
  const AttentionRows* next = nullptr;  // whose next_segment this thread is likely to read after the call, so that it is worth fetching ahead
  int64_t next_segment = 0;

  [[gnu::always_inline]] int64_t token(int64_t row) const { return tokens == nullptr ? row : tokens[row]; }
  [[gnu::always_inline]] int64_t position(int64_t row) const { return tokens == nullptr ? start + row : start; }
  // Does not fall from row to row.
  [[gnu::always_inline]] int64_t first_position(int64_t row) const {
    const int64_t position = this->position(row);
    const int64_t in_window = position >= window ? position - window + 1 : 0;
    const int64_t in_chunk = position >= chunk ? position / chunk * chunk : 0;
    return in_window > in_chunk ? in_window : in_chunk;
  }
  [[gnu::always_inline]] int64_t first_segment() const { return first_position(0) / kSegment; }
  [[gnu::always_inline]] int64_t last_segment() const { return position(rows - 1) / kSegment; }
};

// A query vector's softmax over some of its positions, scores in units of ln 2: [0] the largest score, [1] the sum of
// 2^(score - largest), from [16] on the sum of 2^(score - largest) * V.
[[gnu::always_inline]] inline int64_t attention_state_floats(int64_t head_dim) { return 16 + (head_dim + 15) / 16 * 16; }

// All tokens of one row, and one head of them: every query sees every key.
struct WholeRow {
  const float *q, *k, *v;  // the head's values of the row's first token; tokens are ld floats apart
  int64_t ld, length, head_dim;
  float scale;
};

// Queries that one pass of whole_attention takes at most, and the scratch of one call, in floats: the keys by dimension, then
// the scores of a pass; rows of both hold `length` values, rounded up to whole lines.
constexpr int64_t kWholeQueries = 8;
[[gnu::always_inline]] inline int64_t whole_attention_scratch(int64_t head_dim, int64_t length) {
  return (head_dim + kWholeQueries) * ((length + 15) / 16 * 16);
}

// Positions that are widened to float32 at once.
constexpr int64_t kKvPanel = 64;
// Scratch of one attention call: queries, two sets of states, and the work on a segment: in float32 scores, and a panel by dimension
// (K) and by position (V); in tiles the queries, of 32 vectors scores of a panel and what softmax
// keeps, and copies of K and V.
constexpr int64_t kAttentionVectorWorkBytes = (kMaxVectors * kSegment + kKvPanel * (kMaxKeyDim + kMaxHeadDim)) * 4;
constexpr int64_t kAttentionTileWorkBytes =
    kMaxVectors * kMaxKeyDim * 2 + 32 * (4 * kTile + 16 + 1) * 4 + 32 * (kSegment + 32) * 2 + kSegment * (kMaxKeyDim + kMaxHeadDim) * 2;
constexpr int64_t kAttentionScratchBytes =
    kMaxVectors * (kMaxKeyDim + 2 * (16 + kMaxHeadDim)) * 4 +
    (kAttentionTileWorkBytes > kAttentionVectorWorkBytes ? kAttentionTileWorkBytes : kAttentionVectorWorkBytes) + 64;

constexpr int64_t kSamplingChunk = 64;

struct KernelTable {
  const char* isa;

  // --- linear.inc -------------------------------------------------------------------------------------------------
  ActKind quantised_act;  // that quantised weights are multiplied with
  // act[r] = x[r, :k] prepared, act_row_bytes apart.
  void (*prepare_act)(ActKind kind, const float* x, int64_t ldx, int64_t rows, int64_t k, uint8_t* act);
  // out[r, c] = dot(act[r], w[c]) (+ bias[c]) (+ residual[r, c]) for channels of panels [panel_begin, panel_end).
  // bias and residual may be null; residual may be out itself and has its row stride.
  void (*linear)(const PackedMatrix& w, const uint8_t* act, int64_t rows, const float* bias, const float* residual, float* out,
                 int64_t ldo, int64_t panel_begin, int64_t panel_end);
  // activation(gate[c] . act[r]) * (up[c] . act[r]) as operands of K = gate.n, for panels from an even one on to an even one or the last.
  // gate and up have one format and one shape; they and what reads the result take operands of kind quantised_act.
  void (*gated_linear)(const PackedMatrix& gate, const PackedMatrix& up, Activation activation, const uint8_t* act, int64_t rows, uint8_t* out,
                       int64_t panel_begin, int64_t panel_end);
  // out[i] = row ids[i] of w as float.
  void (*embed)(const PackedMatrix& w, const int32_t* ids, int64_t count, float* out, int64_t ldo);

  // --- elementwise.inc --------------------------------------------------------------------------------------------
  // Each of `groups` groups of `width` values of each row: x / sqrt(mean x^2 + eps) * weight. out may be x.
  void (*rms_norm)(const float* x, int64_t ldx, int64_t rows, int64_t groups, int64_t width, const float* weight, float eps, float* out, int64_t ldo);
  // x centred and scaled: (x - mean) / sqrt(variance + eps) * weight + bias, a row at a time. out may be x.
  void (*layer_norm)(const float* x, int64_t ldx, int64_t rows, int64_t width, const float* weight, const float* bias, float eps, float* out,
                     int64_t ldo);
  // activation(x), value by value. out may be x.
  void (*activate)(Activation activation, const float* x, int64_t count, float* out);
  // out may be gate or up.
  void (*gated)(Activation activation, const float* gate, int64_t ldg, const float* up, int64_t ldu, int64_t rows, int64_t width, float* out,
                int64_t ldo);
  void (*add)(const float* x, const float* y, int64_t count, float* out);
  // Rotates the first dim dimensions of `heads` heads of head_dim; cos, sin [rows, dim / 2], ldt floats apart, are of the
  // rows' positions. out may be x.
  void (*rope)(const float* x, int64_t ldx, int64_t rows, int64_t heads, int64_t head_dim, int64_t dim, bool interleaved, const float* cos,
               const float* sin, int64_t ldt, float* out, int64_t ldo);

  // --- attention.inc ----------------------------------------------------------------------------------------------
  // Writes rows of k and v [rows, kv_heads * head_dim] to their slots; of latent attention: the latent [rows, head_dim] and the
  // rotary part [rows, rotary_dim]. See kv_cache.h for the layout.
  void (*store_kv)(const KvCache& kv, int64_t layer, const float* k, int64_t ldk, const float* v, int64_t ldv, int64_t rows,
                   const int64_t* slots);
  // out: row 0 of [rows, heads * head_dim].
  void (*attention)(const KvCache& kv, const AttentionRows& rows, float* out, int64_t ldo, uint8_t* scratch);
  // The same in two steps, for long contexts and those that share segments: the states [rows * group] of one segment (those of rows that do not
  // see the segment are left alone), then the fold of the states of all segments: those of first_segment + i begin at states + offsets[i].
  void (*attention_segment)(const KvCache& kv, const AttentionRows& rows, int64_t segment, float* states, uint8_t* scratch);
  void (*attention_fold)(const KvCache& kv, const AttentionRows& rows, const float* states, const int64_t* offsets, float* out, int64_t ldo,
                         uint8_t* scratch);

  // --- whole_attention.inc ------------------------------------------------------------------------------------------
  // out: the head's place in the row's first token, ldo floats between tokens.
  void (*whole_attention)(const WholeRow& row, float* out, int64_t ldo, float* scratch);

  // --- sampling.inc: chunks are of kSamplingChunk logits -------------------------------------------------------------
  // Returns whether a logit is NaN; chunk_max[i] = the largest logit of chunk i.
  bool (*chunk_maxima)(const float* logits, int64_t count, float* chunk_max);
  // Writes the ids i, ascending, with logits[i] >= threshold; returns their number. ids has room for count.
  int64_t (*ids_at_least)(const float* logits, int64_t count, float threshold, int32_t* ids);
  // weights[i] = e^(logits[i] - max), chunk_sum[i] = sum of chunk i's weights, in order.
  void (*exp_weights)(const float* logits, int64_t count, float max, float* weights, double* chunk_sum);
  // out may be x.
  void (*divide)(const float* x, int64_t count, float divisor, float* out);
};

enum class Isa : uint8_t { Portable, Avx2, AvxVnni, Avx512, Amx, Neon, I8mm };
constexpr Isa kIsas[] = {Isa::Portable, Isa::Avx2, Isa::AvxVnni, Isa::Avx512, Isa::Amx, Isa::Neon, Isa::I8mm};  // from the narrowest to the widest

bool isa_available(Isa isa);
Isa best_isa();
// Precondition: isa_available(isa).
const KernelTable& kernel_table(Isa isa);

}  // namespace octavo
