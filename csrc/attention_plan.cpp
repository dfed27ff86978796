#include "octavo/attention_plan.h"

#include <algorithm>

namespace octavo {
namespace {

// The most heads that one call takes: a share of the heads of a KV head.
int64_t heads_of_a_call(int64_t heads) {
  int64_t share = 1;
  while (heads % share != 0 || heads / share > kMaxVectors) ++share;
  return heads / share;
}

}  // namespace

AttentionPlan::AttentionPlan(const Batch& batch, const KvCache& kv, int64_t layer_group, int64_t heads, int64_t window, int64_t chunk, int threads)
    : group_size_(heads_of_a_call(heads)), head_groups_(kv.num_kv_heads * heads / group_size_), window_(window), chunk_(chunk) {
  const int64_t rows_per_group = kMaxVectors / group_size_;
  for (int64_t r = 0; r < batch.num_rows; ++r) {
    for (int64_t token = batch.query_start[r]; token < batch.query_start[r + 1]; token += rows_per_group) {
      const int64_t rows = std::min<int64_t>(rows_per_group, batch.query_start[r + 1] - token);
      groups_.push_back({token, rows, batch.positions[token], batch.blocks(r, layer_group), 0});
    }
  }
  // What a group costs, in pairs of a row and a position that it sees; a split group's last segment counts as a whole one.
  const auto cost = [&](const AttentionRows& rows) { return rows.rows * (rows.start + rows.rows - rows.first_position(0)); };
  int64_t total = 0;
  for (const Group& group : groups_) total += cost(rows_of(kv, group, {}, 0));
  // Splitting costs a fold: only contexts that would keep one thread busy for long are split.
  const int64_t dear = threads > 1 ? total * head_groups_ / (4 * threads) : INT64_MAX;
  int64_t state_floats = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const AttentionRows rows = rows_of(kv, groups_[g], {}, 0);
    const int64_t segments = rows.last_segment() - rows.first_segment() + 1;
    const int64_t floats = head_groups_ * segments * rows.rows * group_size_ * attention_state_floats(kv.head_dim);
    if (cost(rows) > dear && segments > 1 && (state_floats + floats) * 4 <= kSplitBytes) {
      groups_[g].states = state_floats;
      state_floats += floats;
      split_.push_back(g);
      for (int64_t s = rows.first_segment(); s <= rows.last_segment(); ++s) pieces_.push_back({g, s, rows.rows * kSegment});
    } else {
      pieces_.push_back({g, kWhole, cost(rows)});
    }
  }
  // The heads of a row lie beside each other in memory: one thread takes them all where there are rows enough for every thread.
  heads_of_piece_ = static_cast<int64_t>(pieces_.size()) >= kPiecesPerThread * threads ? head_groups_ : 1;
  std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.cost > b.cost; });
}

AttentionRows AttentionPlan::rows_of(const KvCache& kv, const Group& group, const Layer& layer, int64_t head_group) const {
  const int64_t heads = group_size_ * head_groups_, ldq = heads * kv.head_dim, ldq_rotary = heads * kv.rotary_dim;
  return {.layer = layer.layer,
          .kv_head = head_group * kv.num_kv_heads / head_groups_,
          .q = layer.q == nullptr ? nullptr : layer.q + group.token * ldq,
          .ldq = ldq,
          .q_rotary = layer.q_rotary == nullptr ? nullptr : layer.q_rotary + group.token * ldq_rotary,
          .ldq_rotary = ldq_rotary,
          .head = head_group * group_size_,
          .group = group_size_,
          .rows = group.rows,
          .start = group.start,
          .block_table = group.block_table,
          .scale = layer.scale,
          .window = window_,
          .chunk = chunk_};
}

int64_t AttentionPlan::states_offset(const KvCache& kv, const Group& group, const AttentionRows& rows) const {
  const int64_t segments = rows.last_segment() - rows.first_segment() + 1;
  return group.states + rows.head * segments * rows.rows * attention_state_floats(kv.head_dim);
}

void AttentionPlan::work(const KernelTable& kernels, const KvCache& kv, const Layer& layer, int64_t piece, uint8_t* scratch, float* states) const {
  const int64_t shares = head_groups_ / heads_of_piece_, first = piece % shares * heads_of_piece_;
  for (int64_t head = first; head < first + heads_of_piece_; ++head) work(kernels, kv, layer, pieces_[static_cast<size_t>(piece / shares)], head, scratch, states);
}

void AttentionPlan::work(const KernelTable& kernels, const KvCache& kv, const Layer& layer, const Piece& part, int64_t head_group, uint8_t* scratch,
                         float* states) const {
  const Group& group = groups_[part.group];
  const AttentionRows rows = rows_of(kv, group, layer, head_group);
  if (part.segment == kWhole) {
    kernels.attention(kv, rows, layer.out + group.token * rows.ldq, rows.ldq, scratch);
  } else {
    const int64_t set = rows.rows * group_size_ * attention_state_floats(kv.head_dim);
    kernels.attention_segment(kv, rows, part.segment, states + states_offset(kv, group, rows) + (part.segment - rows.first_segment()) * set, scratch);
  }
}

void AttentionPlan::fold(const KernelTable& kernels, const KvCache& kv, const Layer& layer, int64_t piece, uint8_t* scratch, const float* states) const {
  const Group& group = groups_[split_[static_cast<size_t>(piece / head_groups_)]];
  const AttentionRows rows = rows_of(kv, group, layer, piece % head_groups_);
  kernels.attention_fold(kv, rows, states + states_offset(kv, group, rows), layer.out + group.token * rows.ldq, rows.ldq, scratch);
}

}  // namespace octavo
