// How one step's attention is cut into pieces of work, and the work itself. The plan depends on the batch only, so one plan
// serves all layers of a step. Pieces are taken dynamically, dear ones first; how they are cut changes no bit (kernels.h).
//
// A piece is rows of one request with all that they see; or, of a context that is long, one segment; or one segment for the rows of several
// requests that have it in common: a prefix that was computed once is read once.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/batch.h"
#include "octavo/kernels.h"

namespace octavo {

// Bytes of the states of split contexts.
constexpr int64_t kSplitBytes = int64_t{8} << 20;

class AttentionPlan {
 public:
  // layer_group: whose blocks are read; heads: query heads a KV head; window, chunk: see AttentionRows.
  AttentionPlan(const Batch& batch, const KvCache& kv, int64_t layer_group, int64_t heads, int64_t window, int64_t chunk, int threads);

  struct Layer {
    int64_t layer;
    const float* q;         // [num_tokens, heads * head_dim]
    const float* q_rotary;  // [num_tokens, heads * rotary_dim], or null where attention is not latent
    float* out;             // as q
    float scale;
  };

  // Does one of the pieces, and fetches from memory what the piece after it needs first. scratch: kAttentionScratchBytes of this thread; states: kSplitBytes, shared.
  int64_t num_pieces() const { return static_cast<int64_t>(pieces_.size()) * (head_groups_ / heads_of_piece_); }
  void work(const KernelTable& kernels, const KvCache& kv, const Layer& layer, int64_t piece, uint8_t* scratch, float* states) const;

  // Once all pieces are done: puts one of the contexts that were split together.
  int64_t num_folds() const { return static_cast<int64_t>(split_.size()) * head_groups_; }
  bool is_split() const { return !split_.empty(); }
  void fold(const KernelTable& kernels, const KvCache& kv, const Layer& layer, int64_t piece, uint8_t* scratch, const float* states) const;

 private:
  struct Group {    // consecutive query rows of one request
    int64_t token;  // index of the first in the step
    int64_t rows, start;
    const int32_t* block_table;
  };
  struct Piece {
    size_t group;
    int64_t segment;      // kWhole: all of them, folded
    int64_t cost;
    int64_t states = 0;   // of a segment: floats before its states
    size_t token = 0;     // of several requests: the first of tokens_, and how many rows there are
    int64_t shared_rows = 0;
  };
  struct Split {
    size_t group;
    std::vector<int64_t> offsets;  // floats before the group's states, [head group][segment]
  };
  static constexpr int64_t kWhole = -1;

  static constexpr int64_t kPiecesPerThread = 8;

  // Where the states of a group's segments lie, as far as they are taken by pieces already.
  struct States {
    int64_t first, apart;  // of head group 0, and from one to the next
  };
  using StatesOfGroups = std::vector<std::vector<States>>;

  void share_prefixes(const KvCache& kv, StatesOfGroups& states);
  void share_segment(const KvCache& kv, const std::vector<size_t>& sharing, int64_t segment, StatesOfGroups& states);
  std::vector<std::vector<size_t>> with_segment_in_common(const KvCache& kv, std::vector<size_t> groups, int64_t segment) const;
  void split(const KvCache& kv, size_t group, std::vector<States>& states);
  int64_t take_states(const KvCache& kv, int64_t rows);

  // What num_pieces() counts: heads_of_piece_ head groups of one of pieces_, from `head` on.
  struct Share {
    const Piece* piece;
    int64_t head;
  };
  Share share_of(int64_t piece) const;
  AttentionRows rows_of(const KvCache& kv, const Layer& layer, const Piece& part, int64_t head_group) const;
  AttentionRows rows_of(const KvCache& kv, const Group& group, const Layer& layer, int64_t head_group) const;
  int64_t num_segments(const KvCache& kv, const Group& group) const;
  int64_t state_floats(const KvCache& kv, int64_t rows) const { return rows * group_size_ * attention_state_floats(kv.head_dim); }  // of a head group and segment

  int64_t group_size_;   // query heads that are taken together, of one KV head
  int64_t head_groups_;  // of all KV heads
  int64_t heads_of_piece_ = 1;  // of these, that one piece takes: all or one
  int64_t window_, chunk_;
  std::vector<Group> groups_;
  std::vector<Piece> pieces_;
  std::vector<int32_t> tokens_;  // of the rows of pieces of several requests
  std::vector<Split> split_;
  int64_t num_floats_ = 0;  // of all states
};

}  // namespace octavo
