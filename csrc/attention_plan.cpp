#include "octavo/attention_plan.h"

#include <algorithm>
#include <span>

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
      groups_.push_back({token, rows, batch.positions[token], batch.blocks(r, layer_group)});
    }
  }
  StatesOfGroups states(groups_.size());
  share_prefixes(kv, states);
  // What a group costs, in pairs of a row and a position that it sees; a split group's last segment counts as a whole one.
  const auto cost = [&](const Group& group) {
    const AttentionRows rows = rows_of(kv, group, {}, 0);
    return rows.rows * (rows.start + rows.rows - rows.first_position(0));
  };
  int64_t total = 0;
  for (const Group& group : groups_) total += cost(group);
  // Splitting costs a fold: only contexts that would keep one thread busy for long are split.
  const int64_t dear = threads > 1 ? total * head_groups_ / (4 * threads) : INT64_MAX;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!states[g].empty()) continue;  // split already
    const int64_t segments = num_segments(kv, groups_[g]);
    const bool fits = (num_floats_ + head_groups_ * segments * state_floats(kv, groups_[g].rows)) * 4 <= kSplitBytes;
    if (cost(groups_[g]) > dear && segments > 1 && fits) {
      split(kv, g, states[g]);
    } else {
      pieces_.push_back({.group = g, .segment = kWhole, .cost = cost(groups_[g])});
    }
  }
  // The heads of a row lie beside each other in memory: one thread takes them all where there are rows enough for every thread.
  heads_of_piece_ = static_cast<int64_t>(pieces_.size()) >= kPiecesPerThread * threads ? head_groups_ : 1;
  std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.cost > b.cost; });
}

// Single rows that see their context from its beginning may have its first segments in common.
void AttentionPlan::share_prefixes(const KvCache& kv, StatesOfGroups& states) {
  std::vector<size_t> rows;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].rows == 1 && rows_of(kv, groups_[g], {}, 0).first_position(0) == 0) rows.push_back(g);
  }
  for (const std::vector<size_t>& sharing : with_segment_in_common(kv, rows, 0)) {
    int64_t floats = num_floats_;
    for (const size_t g : sharing) floats += head_groups_ * num_segments(kv, groups_[g]) * state_floats(kv, 1);
    if (floats * 4 > kSplitBytes) continue;
    share_segment(kv, sharing, 0, states);
    for (const size_t g : sharing) split(kv, g, states[g]);
  }
}

// Takes a segment for all of the groups at once, and those behind it for as many as have them in common.
void AttentionPlan::share_segment(const KvCache& kv, const std::vector<size_t>& sharing, int64_t segment, StatesOfGroups& states) {
  const auto at_once = static_cast<size_t>(kMaxVectors / group_size_);
  for (size_t i = 0; i < sharing.size(); i += at_once) {
    const auto rows = static_cast<int64_t>(std::min(at_once, sharing.size() - i));
    const int64_t floats = take_states(kv, rows);
    pieces_.push_back({.group = sharing[i], .segment = segment, .cost = rows * kSegment, .states = floats, .token = tokens_.size(), .shared_rows = rows});
    for (int64_t r = 0; r < rows; ++r) {
      const size_t g = sharing[i + static_cast<size_t>(r)];
      tokens_.push_back(static_cast<int32_t>(groups_[g].token));
      states[g].push_back({floats + r * state_floats(kv, 1), state_floats(kv, rows)});
    }
  }
  for (const std::vector<size_t>& next : with_segment_in_common(kv, sharing, segment + 1)) share_segment(kv, next, segment + 1, states);
}

// Sets, of two at least, of those groups that see all of a segment in the same blocks.
std::vector<std::vector<size_t>> AttentionPlan::with_segment_in_common(const KvCache& kv, std::vector<size_t> groups, int64_t segment) const {
  std::erase_if(groups, [&](size_t g) { return groups_[g].start + 1 < (segment + 1) * kSegment; });
  const int64_t count = kSegment / kv.block_size;
  const auto blocks = [&](size_t g) { return std::span(groups_[g].block_table + segment * count, static_cast<size_t>(count)); };
  std::ranges::stable_sort(groups, [&](size_t a, size_t b) { return std::ranges::lexicographical_compare(blocks(a), blocks(b)); });
  std::vector<std::vector<size_t>> sets;
  for (auto first = groups.begin(); first != groups.end();) {
    const auto last = std::find_if_not(first, groups.end(), [&](size_t g) { return std::ranges::equal(blocks(*first), blocks(g)); });
    if (last - first > 1) sets.emplace_back(first, last);
    first = last;
  }
  return sets;
}

// Pieces for the segments of a group that have no states yet, and the fold of all.
void AttentionPlan::split(const KvCache& kv, size_t group, std::vector<States>& states) {
  const AttentionRows rows = rows_of(kv, groups_[group], {}, 0);
  while (static_cast<int64_t>(states.size()) < num_segments(kv, groups_[group])) {
    const int64_t segment = rows.first_segment() + static_cast<int64_t>(states.size()), floats = take_states(kv, rows.rows);
    pieces_.push_back({.group = group, .segment = segment, .cost = rows.rows * kSegment, .states = floats});
    states.push_back({floats, state_floats(kv, rows.rows)});
  }
  Split split{group, {}};
  for (int64_t h = 0; h < head_groups_; ++h) {
    for (const States& of : states) split.offsets.push_back(of.first + h * of.apart);
  }
  split_.push_back(std::move(split));
}

// Room for the states of a segment, of all head groups; returns the floats before it.
int64_t AttentionPlan::take_states(const KvCache& kv, int64_t rows) {
  const int64_t first = num_floats_;
  num_floats_ += head_groups_ * state_floats(kv, rows);
  return first;
}

int64_t AttentionPlan::num_segments(const KvCache& kv, const Group& group) const {
  const AttentionRows rows = rows_of(kv, group, {}, 0);
  return rows.last_segment() - rows.first_segment() + 1;
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

void AttentionPlan::work(const KernelTable& kernels, const KvCache& kv, const Layer& layer, int64_t piece, uint8_t* scratch, float* states) const {
  const auto [part, first] = share_of(piece);
  const Share after = piece + 1 < num_pieces() ? share_of(piece + 1) : Share{nullptr, 0};
  AttentionRows rows = rows_of(kv, layer, *part, first);
  for (int64_t head = first; head < first + heads_of_piece_; ++head) {
    const Share then = head + 1 < first + heads_of_piece_ ? Share{part, head + 1} : after;
    AttentionRows next{};
    if (then.piece != nullptr) {
      next = rows_of(kv, layer, *then.piece, then.head);
      rows.next = &next;
      rows.next_segment = then.piece->segment == kWhole ? next.first_segment() : then.piece->segment;
    }
    if (part->segment == kWhole) {
      kernels.attention(kv, rows, layer.out + groups_[part->group].token * rows.ldq, rows.ldq, scratch);
    } else {
      kernels.attention_segment(kv, rows, part->segment, states + part->states + head * state_floats(kv, rows.rows), scratch);
    }
    rows = next;
  }
}

AttentionPlan::Share AttentionPlan::share_of(int64_t piece) const {
  const int64_t shares = head_groups_ / heads_of_piece_;
  return {&pieces_[static_cast<size_t>(piece / shares)], piece % shares * heads_of_piece_};
}

AttentionRows AttentionPlan::rows_of(const KvCache& kv, const Layer& layer, const Piece& part, int64_t head_group) const {
  AttentionRows rows = rows_of(kv, groups_[part.group], layer, head_group);
  if (part.shared_rows > 0) {
    rows.q = layer.q;
    rows.q_rotary = layer.q_rotary;
    rows.rows = part.shared_rows;
    rows.tokens = tokens_.data() + part.token;
  }
  return rows;
}

void AttentionPlan::fold(const KernelTable& kernels, const KvCache& kv, const Layer& layer, int64_t piece, uint8_t* scratch, const float* states) const {
  const Split& split = split_[static_cast<size_t>(piece / head_groups_)];
  const Group& group = groups_[split.group];
  const int64_t head_group = piece % head_groups_, segments = static_cast<int64_t>(split.offsets.size()) / head_groups_;
  const AttentionRows rows = rows_of(kv, group, layer, head_group);
  kernels.attention_fold(kv, rows, states, split.offsets.data() + head_group * segments, layer.out + group.token * rows.ldq, rows.ldq, scratch);
}

}  // namespace octavo
