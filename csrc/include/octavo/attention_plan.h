// How one step's attention is cut into pieces of work, and the work itself. The plan depends on the batch only, so one plan
// serves all layers of a step. Pieces are taken dynamically, dear ones first; how they are cut changes no bit (kernels.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "octavo/batch.h"
#include "octavo/kernels.h"

namespace octavo {

// Bytes of the states of split contexts.
constexpr int64_t kSplitBytes = int64_t{8} << 20;

class AttentionPlan {
 public:
  // group: query heads a KV head; window: see AttentionRows.
  AttentionPlan(const Batch& batch, const KvCache& kv, int64_t group, int64_t window, int threads);

  struct Layer {
    int64_t layer;
    const float* q;
    float* out;  // both [num_tokens, heads * head_dim]
    float scale;
  };

  // Takes pieces until none is left; `next` starts at 0 and is shared by the threads. scratch: kAttentionScratchBytes of
  // this thread; states: kSplitBytes, shared.
  void work(const KernelTable& kernels, const KvCache& kv, const Layer& layer, std::atomic<int64_t>& next, uint8_t* scratch, float* states) const;

  // Whether fold() must follow, once all threads are through work().
  bool is_split() const { return !split_.empty(); }
  void fold(const KernelTable& kernels, const KvCache& kv, const Layer& layer, int thread, int threads, uint8_t* scratch, const float* states) const;

 private:
  struct Group {      // consecutive query rows of one request
    int64_t token;    // index of the first in the step
    int64_t rows, start;
    const int32_t* block_table;
    int64_t states;   // floats before its states, if it is split
  };
  struct Piece {
    size_t group;
    int64_t segment;  // kWhole: all of them, folded
    int64_t cost;
  };
  static constexpr int64_t kWhole = -1;

  AttentionRows rows_of(const KvCache& kv, const Group& group, const Layer& layer, int64_t kv_head) const;
  int64_t states_offset(const KvCache& kv, const Group& group, const AttentionRows& rows) const;

  int64_t group_size_, window_;
  std::vector<Group> groups_;
  std::vector<Piece> pieces_;
  std::vector<size_t> split_;
};

}  // namespace octavo
