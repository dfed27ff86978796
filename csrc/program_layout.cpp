// Regions and the arena of a Program: what may run as one stage, and where each tensor lies.
#include <algorithm>
#include <map>

#include "octavo/program.h"

namespace octavo {
namespace {

template <class... F>
struct Match : F... {
  using F::operator()...;
};

bool contains(const std::vector<TensorId>& list, TensorId id) { return std::find(list.begin(), list.end(), id) != list.end(); }

// Tensors whose place the operation's result may take: it reads no value of them after having written over it.
std::vector<TensorId> replaceable(const Operation& operation) {
  return std::visit(Match{[](const RmsNormOp& op) { return std::vector{op.x}; },                //
                          [](const LayerNormOp& op) { return std::vector{op.x}; },              //
                          [](const ActivateOp& op) { return std::vector{op.x}; },               //
                          [](const RopeOp& op) { return std::vector{op.x}; },                   //
                          [](const GatedOp& op) { return std::vector{op.gate, op.up}; },        //
                          [](const AddOp& op) { return std::vector{op.x, op.y}; },              //
                          [](const LinearOp& op) { return std::vector{op.residual}; },          //
                          [](const auto&) { return std::vector<TensorId>{}; }},
                    operation);
}

// Places in the arena, by offset; a new one goes into the first gap that holds it.
class Places {
 public:
  int64_t take(int64_t bytes) {
    int64_t offset = 0;
    for (const auto& [begin, size] : taken_) {
      if (begin - offset >= bytes) break;
      offset = begin + size;
    }
    taken_[offset] = bytes;
    top_ = std::max(top_, offset + bytes);
    return offset;
  }
  void release(int64_t offset) { taken_.erase(offset); }
  int64_t top() const { return top_; }

 private:
  std::map<int64_t, int64_t> taken_;
  int64_t top_ = 0;
};

}  // namespace

std::vector<TensorId> inputs_of(const Operation& operation) {
  return std::visit(Match{[](const EmbedOp&) { return std::vector<TensorId>{}; },                       //
                          [](const AnglesOp&) { return std::vector<TensorId>{}; },                      //
                          [](const TakeRowsOp& op) { return std::vector{op.x}; },                       //
                          [](const RmsNormOp& op) { return std::vector{op.x}; },                        //
                          [](const PrepareOp& op) { return std::vector{op.x}; },                        //
                          [](const LinearOp& op) { return op.residual == kNone ? std::vector{op.act} : std::vector{op.act, op.residual}; },
                          [](const GatedLinearOp& op) { return std::vector{op.act}; },                  //
                          [](const RopeOp& op) { return std::vector{op.x, op.angles}; },                //
                          [](const StoreKvOp& op) { return std::vector{op.k, op.v}; },                  //
                          [](const AttentionOp& op) { return op.q_rotary == kNone ? std::vector{op.q} : std::vector{op.q, op.q_rotary}; },
                          [](const WholeAttentionOp& op) { return std::vector{op.q, op.k, op.v}; },     //
                          [](const LayerNormOp& op) { return std::vector{op.x}; },                      //
                          [](const ActivateOp& op) { return std::vector{op.x}; },                       //
                          [](const GatedOp& op) { return std::vector{op.gate, op.up}; },                //
                          [](const RouteOp& op) { return std::vector{op.logits}; },                     //
                          [](const ExpertsOp& op) { return std::vector{op.x, op.weights}; },            //
                          [](const AddOp& op) { return std::vector{op.x, op.y}; }},
                    operation);
}

TensorId output_of(const Operation& operation) {
  return std::visit(Match{[](const StoreKvOp&) { return kNone; }, [](const auto& op) { return op.out; }}, operation);
}

std::vector<Region> cut_regions(const std::vector<Tensor>& tensors, const std::vector<Operation>& operations) {
  std::vector<Region> regions;
  std::vector<TensorId> written;  // by the products of the last region
  for (size_t i = 0; i < operations.size(); ++i) {
    const Operation& operation = operations[i];
    const TensorId out = output_of(operation);
    const RowSpace rows = out == kNone ? RowSpace::Tokens : tensors[static_cast<size_t>(out)].rows;
    const auto kind = std::holds_alternative<LinearOp>(operation)           ? Region::Kind::Products
                      : std::holds_alternative<GatedLinearOp>(operation)    ? Region::Kind::Products
                      : std::holds_alternative<AttentionOp>(operation)      ? Region::Kind::Attention
                      : std::holds_alternative<WholeAttentionOp>(operation) ? Region::Kind::Whole
                      : std::holds_alternative<ExpertsOp>(operation)        ? Region::Kind::Experts
                                                                            : Region::Kind::Rows;
    bool joins = !regions.empty() && regions.back().kind == kind && (kind == Region::Kind::Rows || kind == Region::Kind::Products);
    if (joins && kind == Region::Kind::Rows) joins = regions.back().rows == rows;
    if (joins && kind == Region::Kind::Products) {
      for (const TensorId id : inputs_of(operation)) joins = joins && !contains(written, id);
    }
    if (joins) {
      regions.back().end = i + 1;
    } else {
      regions.push_back({kind, rows, i, i + 1});
      written.clear();
    }
    written.push_back(out);
  }
  return regions;
}

// Whether a tensor is written and read in one region of rows only.
std::vector<bool> kept_in_a_piece(const std::vector<Tensor>& tensors, const std::vector<Operation>& operations, const std::vector<Region>& regions, TensorId output) {
  constexpr size_t kNowhere = SIZE_MAX;
  std::vector<size_t> home(tensors.size(), kNowhere);
  std::vector<bool> kept(tensors.size(), true);
  for (size_t r = 0; r < regions.size(); ++r) {
    for (size_t i = regions[r].begin; i < regions[r].end; ++i) {
      std::vector<TensorId> touched = inputs_of(operations[i]);
      if (output_of(operations[i]) != kNone) touched.push_back(output_of(operations[i]));
      for (const TensorId id : touched) {
        const auto t = static_cast<size_t>(id);
        if (home[t] == kNowhere) home[t] = r;
        if (home[t] != r || regions[r].kind != Region::Kind::Rows) kept[t] = false;
      }
    }
  }
  kept[static_cast<size_t>(output)] = false;
  return kept;
}

ArenaLayout lay_out(const std::vector<Tensor>& tensors, const std::vector<Operation>& operations, const std::vector<Region>& regions, TensorId output,
                    int64_t max_tokens, int64_t max_samples) {
  std::vector<size_t> last_use(tensors.size(), 0);
  for (size_t i = 0; i < operations.size(); ++i) {
    for (const TensorId id : inputs_of(operations[i])) last_use[static_cast<size_t>(id)] = i;
  }
  last_use[static_cast<size_t>(output)] = operations.size();

  ArenaLayout layout{std::vector<int64_t>(tensors.size(), 0), kept_in_a_piece(tensors, operations, regions, output), 0, 0};
  Places places;
  for (const Region& region : regions) {
    int64_t piece_bytes = 0;
    std::vector<TensorId> dying;
    for (size_t i = region.begin; i < region.end; ++i) {
      for (const TensorId id : inputs_of(operations[i])) {
        if (last_use[static_cast<size_t>(id)] == i && !contains(dying, id) && !layout.is_kept[static_cast<size_t>(id)]) dying.push_back(id);
      }
    }
    for (size_t i = region.begin; i < region.end; ++i) {
      const TensorId out = output_of(operations[i]);
      if (out == kNone) continue;
      const Tensor& tensor = tensors[static_cast<size_t>(out)];
      if (layout.is_kept[static_cast<size_t>(out)]) {
        layout.offset[static_cast<size_t>(out)] = piece_bytes;
        piece_bytes += (kRowsAtOnce * tensor.row_bytes + 63) / 64 * 64;
        layout.piece_bytes = std::max(layout.piece_bytes, piece_bytes);
        continue;
      }
      TensorId replaced = kNone;
      for (const TensorId id : replaceable(operations[i])) {
        if (id == kNone || replaced != kNone || !contains(dying, id) || last_use[static_cast<size_t>(id)] != i) continue;
        const Tensor& old = tensors[static_cast<size_t>(id)];
        bool is_read_beside = false;  // products of one region run at the same time
        if (region.kind == Region::Kind::Products) {
          for (size_t j = region.begin; j < region.end; ++j) is_read_beside |= j != i && contains(inputs_of(operations[j]), id);
        }
        if (old.rows == tensor.rows && old.row_bytes == tensor.row_bytes && !is_read_beside) replaced = id;
      }
      if (replaced != kNone) {
        layout.offset[static_cast<size_t>(out)] = layout.offset[static_cast<size_t>(replaced)];
        dying.erase(std::find(dying.begin(), dying.end(), replaced));
      } else {
        const int64_t rows = tensor.rows == RowSpace::Tokens ? max_tokens : max_samples;
        layout.offset[static_cast<size_t>(out)] = places.take((rows * tensor.row_bytes + 63) / 64 * 64);
      }
      if (last_use[static_cast<size_t>(out)] == 0) dying.push_back(out);  // nobody reads it
    }
    for (const TensorId id : dying) places.release(layout.offset[static_cast<size_t>(id)]);
  }
  layout.bytes = places.top();
  return layout;
}

}  // namespace octavo
