#include "octavo/attention_plan.h"

#include <algorithm>

namespace octavo {

AttentionPlan::AttentionPlan(const Batch& batch, const KvCache& kv, int64_t layer_group, int64_t group, int64_t window, int64_t chunk, int threads)
    : group_size_(group), window_(window), chunk_(chunk), kv_heads_(kv.num_kv_heads) {
  const int64_t rows_per_group = std::max<int64_t>(1, kMaxVectors / group);
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
  const int64_t dear = threads > 1 ? total * kv.num_kv_heads / (4 * threads) : INT64_MAX;
  int64_t state_floats = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const AttentionRows rows = rows_of(kv, groups_[g], {}, 0);
    const int64_t segments = rows.last_segment() - rows.first_segment() + 1;
    const int64_t floats = kv.num_kv_heads * segments * rows.rows * group * attention_state_floats(kv.head_dim);
    if (cost(rows) > dear && segments > 1 && (state_floats + floats) * 4 <= kSplitBytes) {
      groups_[g].states = state_floats;
      state_floats += floats;
      split_.push_back(g);
      for (int64_t s = rows.first_segment(); s <= rows.last_segment(); ++s) pieces_.push_back({g, s, rows.rows * kSegment});
    } else {
      pieces_.push_back({g, kWhole, cost(rows)});
    }
  }
  std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.cost > b.cost; });
}

AttentionRows AttentionPlan::rows_of(const KvCache& kv, const Group& group, const Layer& layer, int64_t kv_head) const {
  const int64_t ldq = group_size_ * kv.num_kv_heads * kv.head_dim;
  return {.layer = layer.layer,
          .kv_head = kv_head,
          .q = layer.q == nullptr ? nullptr : layer.q + group.token * ldq,
          .ldq = ldq,
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
  return group.states + rows.kv_head * segments * rows.rows * group_size_ * attention_state_floats(kv.head_dim);
}

void AttentionPlan::work(const KernelTable& kernels, const KvCache& kv, const Layer& layer, int64_t piece, uint8_t* scratch, float* states) const {
  const Piece& part = pieces_[static_cast<size_t>(piece / kv_heads_)];
  const Group& group = groups_[part.group];
  const AttentionRows rows = rows_of(kv, group, layer, piece % kv_heads_);
  if (part.segment == kWhole) {
    kernels.attention(kv, rows, layer.out + group.token * rows.ldq, rows.ldq, scratch);
  } else {
    const int64_t set = rows.rows * group_size_ * attention_state_floats(kv.head_dim);
    kernels.attention_segment(kv, rows, part.segment, states + states_offset(kv, group, rows) + (part.segment - rows.first_segment()) * set, scratch);
  }
}

void AttentionPlan::fold(const KernelTable& kernels, const KvCache& kv, const Layer& layer, int64_t piece, uint8_t* scratch, const float* states) const {
  const Group& group = groups_[split_[static_cast<size_t>(piece / kv_heads_)]];
  const AttentionRows rows = rows_of(kv, group, layer, piece % kv_heads_);
  kernels.attention_fold(kv, rows, states + states_offset(kv, group, rows), layer.out + group.token * rows.ldq, rows.ldq, scratch);
}

}  // namespace octavo
