#include "octavo/eager.h"

#include <cstdlib>
#include <memory>
#include <new>

#include "octavo/attention_plan.h"

namespace octavo::eager {
namespace {

// Calls f(first row, number of rows) for pieces of the rows.
template <class F>
void share_rows(Device& device, int64_t rows, F&& f) {
  const Cut cut = Cut::of(rows, 4 * device.pool.size());
  device.pool.for_each(cut.pieces, [&](int64_t i, int) { f(cut.begin(i), cut.begin(i + 1) - cut.begin(i)); });
}

// Memory for `count` values, on a line of the caches as a program's is, and like it not filled: of the room for split contexts
// little is used, and clearing it would cost more than most calls.
struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
std::unique_ptr<T[], Free> room_for(int64_t count) {
  const auto lines = (static_cast<size_t>(count) * sizeof(T) + 63) / 64 + 1;  // kernels may read a line past a row's end
  std::unique_ptr<T[], Free> room(static_cast<T*>(std::aligned_alloc(64, 64 * lines)));
  if (room == nullptr) throw std::bad_alloc();
  return room;
}

}  // namespace

void embed(Device& device, const PackedMatrix& weight, const int32_t* ids, int64_t rows, float* out) {
  share_rows(device, rows, [&](int64_t r, int64_t n) { device.kernels.embed(weight, ids + r, n, out + r * weight.k, weight.k); });
}

void rms_norm(Device& device, const float* x, int64_t rows, int64_t groups, int64_t width, const float* weight, float eps, float* out) {
  const int64_t ld = groups * width;
  share_rows(device, rows, [&](int64_t r, int64_t n) { device.kernels.rms_norm(x + r * ld, ld, n, groups, width, weight, eps, out + r * ld, ld); });
}

void layer_norm(Device& device, const float* x, int64_t rows, int64_t width, const float* weight, const float* bias, float eps, float* out) {
  share_rows(device, rows, [&](int64_t r, int64_t n) { device.kernels.layer_norm(x + r * width, width, n, width, weight, bias, eps, out + r * width, width); });
}

void activate(Device& device, Activation activation, const float* x, int64_t count, float* out) {
  const Cut cut = Cut::of(count, 4 * device.pool.size(), 4096);
  device.pool.for_each(cut.pieces, [&](int64_t i, int) {
    device.kernels.activate(activation, x + cut.begin(i), cut.begin(i + 1) - cut.begin(i), out + cut.begin(i));
  });
}

void whole_attention(Device& device, const Batch& batch, int64_t heads, int64_t head_dim, const float* q, const float* k, const float* v, float scale,
                     float* out) {
  const int64_t ld = heads * head_dim, scratch = whole_attention_scratch(head_dim, batch.num_tokens);
  const auto scratches = room_for<float>(device.pool.size() * scratch);
  device.pool.for_each(batch.num_rows * heads, [&](int64_t i, int thread) {
    const int64_t first = batch.query_start[i / heads], length = batch.query_start[i / heads + 1] - first, at = first * ld + i % heads * head_dim;
    device.kernels.whole_attention({q + at, k + at, v + at, ld, length, head_dim, scale}, out + at, ld, scratches.get() + thread * scratch);
  });
}

void linear(Device& device, const PackedMatrix& weight, const float* x, int64_t rows, int64_t heads, const float* bias, float* out) {
  const auto act_bytes = static_cast<int64_t>(act_row_bytes(weight.act, weight.k));
  const int64_t ldx = heads * weight.k, panels = weight.panels() / heads;
  const auto act = room_for<uint8_t>(rows * act_bytes);
  for (int64_t h = 0; h < heads && rows > 0; ++h) {
    share_rows(device, rows, [&](int64_t r, int64_t n) {
      device.kernels.prepare_act(weight.act, x + r * ldx + h * weight.k, ldx, n, weight.k, act.get() + r * act_bytes);
    });
    share_rows(device, panels, [&](int64_t p, int64_t n) {
      device.kernels.linear(weight, act.get(), rows, bias, nullptr, out, weight.n, h * panels + p, h * panels + p + n);
    });
  }
}

void rope(Device& device, const Rotary& rotary, const float* x, const int32_t* positions, int64_t rows, int64_t heads, int64_t head_dim, float* out) {
  const int64_t ld = heads * head_dim, dim = 2 * rotary.pairs();
  const auto angles = room_for<float>(rows * dim);
  share_rows(device, rows, [&](int64_t r, int64_t n) {
    float* table = angles.get() + r * dim;
    rotary.fill(positions + r, n, table);
    device.kernels.rope(x + r * ld, ld, n, heads, head_dim, dim, rotary.interleaved, table, table + dim / 2, dim, out + r * ld, ld);
  });
}

void store_kv(Device& device, const KvCache& kv, int64_t layer, const float* k, const float* v, int64_t rows, const int64_t* slots) {
  const int64_t ldk = kv.num_kv_heads * kv.head_dim, ldv = kv.is_latent() ? kv.rotary_dim : ldk;
  share_rows(device, rows, [&](int64_t r, int64_t n) { device.kernels.store_kv(kv, layer, k + r * ldk, ldk, v + r * ldv, ldv, n, slots + r); });
}

void attention(Device& device, const KvCache& kv, int64_t layer, const Batch& batch, int64_t heads, const float* q, const float* q_rotary, float scale,
               int64_t window, int64_t chunk, float* out) {
  const int threads = device.pool.size();
  const AttentionPlan plan(batch, kv, 0, heads, window, chunk, threads);
  const AttentionPlan::Layer work{layer, q, q_rotary, out, scale};
  const auto scratch = room_for<uint8_t>(threads * kAttentionScratchBytes);
  const auto states = room_for<float>(plan.is_split() ? kSplitBytes / 4 : 0);
  device.pool.for_each(plan.num_pieces(), [&](int64_t i, int thread) {
    plan.work(device.kernels, kv, work, i, scratch.get() + thread * kAttentionScratchBytes, states.get());
  });
  device.pool.for_each(plan.num_folds(), [&](int64_t i, int thread) {
    plan.fold(device.kernels, kv, work, i, scratch.get() + thread * kAttentionScratchBytes, states.get());
  });
}

void route(Device& device, const Routing& routing, const float* logits, int64_t rows, const float* bias, float* weights) {
  share_rows(device, rows, [&](int64_t r, int64_t n) {
    for (int64_t i = r; i < r + n; ++i) route_row(routing, logits + i * routing.experts, bias, weights + i * routing.experts);
  });
}

void experts(Device& device, const Experts& experts, const float* x, const float* weights, int64_t rows, float* out) {
  const auto memory = room_for<uint8_t>(ExpertsWork::bytes(experts, rows));
  const ExpertsWork work(experts, x, weights, rows, device.pool.size(), out, memory.get());
  for (int s = 0; s < ExpertsWork::kStages; ++s) {
    device.pool.for_each(ExpertsWork::pieces(experts, s, rows, device.pool.size()), [&](int64_t piece, int) { work.work(device.kernels, s, piece); });
  }
}

void gated(Device& device, Activation activation, const float* gate, const float* up, int64_t rows, int64_t width, float* out) {
  share_rows(device, rows, [&](int64_t r, int64_t n) {
    device.kernels.gated(activation, gate + r * width, width, up + r * width, width, n, width, out + r * width, width);
  });
}

void add(Device& device, const float* x, const float* y, int64_t count, float* out) {
  const Cut cut = Cut::of(count, 4 * device.pool.size(), 4096);
  device.pool.for_each(cut.pieces, [&](int64_t i, int) {
    device.kernels.add(x + cut.begin(i), y + cut.begin(i), cut.begin(i + 1) - cut.begin(i), out + cut.begin(i));
  });
}

}  // namespace octavo::eager
