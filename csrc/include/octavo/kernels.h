// The table of kernels that each ISA fills (csrc/kernels/table.cpp, compiled once an ISA). All are single-threaded over
// the range that they are given; the caller cuts the work. Every row's arithmetic is fixed: it does not depend on the other
// rows of the call nor on how the work was cut.
#pragma once

#include <cstdint>

#include "octavo/kv_cache.h"
#include "octavo/packed.h"

namespace octavo {

struct KernelTable {
  const char* isa;

  // --- linear.inc -------------------------------------------------------------------------------------------------
  // act[r] = x[r, :k] prepared, act_row_bytes apart.
  void (*prepare_act)(ActKind kind, const float* x, int64_t ldx, int64_t rows, int64_t k, uint8_t* act);
  // out[r, c] = dot(act[r], w[c]) (+ bias[c]) (+ residual[r, c]) for channels of panels [panel_begin, panel_end).
  // bias and residual may be null; residual may be out itself and has its row stride.
  void (*linear)(const PackedMatrix& w, const uint8_t* act, int64_t rows, const float* bias, const float* residual, float* out,
                 int64_t ldo, int64_t panel_begin, int64_t panel_end);
  // out[i] = row ids[i] of w as float.
  void (*embed)(const PackedMatrix& w, const int32_t* ids, int64_t count, float* out, int64_t ldo);

  // --- elementwise.inc --------------------------------------------------------------------------------------------
  // Each of `groups` groups of `width` values of each row: x / sqrt(mean x^2 + eps) * weight. out may be x.
  void (*rms_norm)(const float* x, int64_t ldx, int64_t rows, int64_t groups, int64_t width, const float* weight, float eps, float* out, int64_t ldo);
  void (*gated)(int activation, const float* gate, int64_t ldg, const float* up, int64_t ldu, int64_t rows, int64_t width, float* out, int64_t ldo);
  void (*add)(const float* x, const float* y, int64_t count, float* out);
  // Rotates `heads` heads of head_dim; cos, sin [rows, dim / 2] are of the rows' positions. out may be x.
  void (*rope)(const float* x, int64_t ldx, int64_t rows, int64_t heads, int64_t head_dim, int64_t dim, bool interleaved, const float* cos,
               const float* sin, float* out, int64_t ldo);

  // --- attention.inc ----------------------------------------------------------------------------------------------
  // Writes rows of k and v [rows, kv_heads * head_dim] to their slots. See kv_cache.h for the layout and the tail rule.
  void (*store_kv)(const KvCache& kv, int64_t layer, const float* k, int64_t ldk, const float* v, int64_t ldv, int64_t rows,
                   const int64_t* slots);
  // Attention of `rows` consecutive query rows of one request, first at position `start`, for one KV head and its query
  // heads: q, out [rows, heads * head_dim] point at row 0. scratch: attention_scratch_bytes().
  void (*attention)(const KvCache& kv, int64_t layer, int64_t kv_head, const float* q, int64_t ldq, int64_t heads, int64_t rows, int64_t start,
                    const int32_t* block_table, float scale, int64_t window, float* out, int64_t ldo, uint8_t* scratch);

  // --- sampling.inc -----------------------------------------------------------------------------------------------
  // Largest logit, its lowest index, log(sum(exp(logit - max))); returns false when a logit is NaN or none is finite.
  bool (*logits_stats)(const float* logits, int64_t vocab, float* max, int64_t* argmax, float* log_sum_exp);
};

enum class Isa : uint8_t { Portable, Avx2, Avx512 };

bool isa_available(Isa isa);
Isa best_isa();
const KernelTable& kernel_table(Isa isa);

}  // namespace octavo
