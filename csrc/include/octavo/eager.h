// The verbs of octavo.ops.interface.Ops one at a time, on all threads of a device: what a Program runs, without the program.
// A row's bits are those of the program. Preconditions as for the kernels; all arrays are dense.
#pragma once

#include <cstdint>

#include "octavo/batch.h"
#include "octavo/device.h"
#include "octavo/experts.h"
#include "octavo/rotary.h"

namespace octavo::eager {

void embed(Device& device, const PackedMatrix& weight, const int32_t* ids, int64_t rows, float* out);
void layer_norm(Device& device, const float* x, int64_t rows, int64_t width, const float* weight, const float* bias, float eps, float* out);
void activate(Device& device, Activation activation, const float* x, int64_t count, float* out);
// q, k, v, out [batch.num_tokens, heads * head_dim]; rows are whole.
void whole_attention(Device& device, const Batch& batch, int64_t heads, int64_t head_dim, const float* q, const float* k, const float* v, float scale,
                     float* out);
void rms_norm(Device& device, const float* x, int64_t rows, int64_t groups, int64_t width, const float* weight, float eps, float* out);
// bias may be null. Several heads: head h of x [rows, heads * weight.k] meets channels [h, h + 1) * weight.n / heads, whole panels.
void linear(Device& device, const PackedMatrix& weight, const float* x, int64_t rows, int64_t heads, const float* bias, float* out);
void rope(Device& device, const Rotary& rotary, const float* x, const int32_t* positions, int64_t rows, int64_t heads, int64_t head_dim, float* out);
// Of latent attention, k is the latent and v the rotary part.
void store_kv(Device& device, const KvCache& kv, int64_t layer, const float* k, const float* v, int64_t rows, const int64_t* slots);
// q, out [batch.num_tokens, kv.num_kv_heads * heads * kv.head_dim]; q_rotary [.., heads * kv.rotary_dim], or null where attention is
// not latent. The blocks are those of the batch's first layer group.
void attention(Device& device, const KvCache& kv, int64_t layer, const Batch& batch, int64_t heads, const float* q, const float* q_rotary, float scale,
               int64_t window, int64_t chunk, float* out);
// bias may be null.
void route(Device& device, const Routing& routing, const float* logits, int64_t rows, const float* bias, float* weights);
void experts(Device& device, const Experts& experts, const float* x, const float* weights, int64_t rows, float* out);
void gated(Device& device, Activation activation, const float* gate, const float* up, int64_t rows, int64_t width, float* out);
void add(Device& device, const float* x, const float* y, int64_t count, float* out);

}  // namespace octavo::eager
