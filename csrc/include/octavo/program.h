// A recorded forward pass as one call: operations over an arena, run by all threads of the pool inside one ThreadPool::run.
//
// Operations are grouped into regions, each a Stage of pieces (attention over split contexts: two):
//   rows       operations in which a row of the result reads the same row of the operands: a piece is a few rows, taken
//              through all operations, so what one writes the next finds in the cache;
//   products   linear operations that do not read each other's results: a piece is some panels of all of them;
//   attention  see attention_plan.h;
//   whole      attention over whole rows, without KV memory: a piece is one head of one row;
//   experts    see experts.h.
//
// Tensors are numbered by the caller. A tensor lives in the arena from its writer to its last reader; a place is taken over
// where an operation may work in place, else only in a later region. One that does not leave its region of rows has no place in it: each thread
// keeps its rows of the piece that it has in hand.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "octavo/attention_plan.h"
#include "octavo/batch.h"
#include "octavo/device.h"
#include "octavo/experts.h"
#include "octavo/pages.h"
#include "octavo/rotary.h"

namespace octavo {

enum class RowSpace : uint8_t { Tokens, Samples };

struct Tensor {
  RowSpace rows;
  int64_t row_bytes;
};

using TensorId = int;
constexpr TensorId kNone = -1;

using Vector = std::shared_ptr<const std::vector<float>>;

enum class Ids : uint8_t { Tokens, Positions, Types };  // which index array of the batch

struct EmbedOp {
  TensorId out;
  Ids ids;
  std::shared_ptr<const PackedMatrix> weight;
};
struct AnglesOp {  // cos and sin of the tokens' positions
  TensorId out;
  Rotary rotary;
};
struct TakeRowsOp {
  TensorId out, x;
};
struct RmsNormOp {
  TensorId out, x;
  Vector weight;
  float eps;
};
struct LayerNormOp {
  TensorId out, x;
  Vector weight, bias;
  float eps;
};
struct ActivateOp {
  TensorId out, x;
  Activation activation;
};
struct PrepareOp {  // x as operand of products; several heads: those of head 0 of all rows, then those of head 1, ...
  TensorId out, x;
  ActKind kind;
  int64_t heads;
};
struct LinearOp {
  TensorId out, act;  // act: of PrepareOp
  std::shared_ptr<const PackedMatrix> weight;
  Vector bias;        // or null
  TensorId residual;  // or kNone
  int64_t heads;      // head h of the operand meets channels [h, h + 1) * n / heads, whole panels
};
struct RopeOp {
  TensorId out, x, angles;
  int64_t head_dim;
  bool interleaved;
};
struct StoreKvOp {
  TensorId k, v;               // of latent attention: the latent and the rotary part
  int64_t layer_group, layer;  // layer: of the cache, which holds the layers of one group after another
};
struct AttentionOp {
  TensorId out, q, q_rotary;  // q_rotary: kNone where attention is not latent
  int64_t layer_group, layer;
  float scale;
  int64_t window, chunk;
};
struct WholeAttentionOp {
  TensorId out, q, k, v;
  int64_t head_dim;
  float scale;
};
struct GatedOp {
  TensorId out, gate, up;
  Activation activation;
};
struct AddOp {
  TensorId out, x, y;
};
struct RouteOp {
  TensorId out, logits;  // both [rows, experts]
  Vector bias;           // or null
  Routing routing;
};
struct ExpertsOp {
  TensorId out, x, weights;  // weights: of RouteOp
  std::shared_ptr<const Experts> experts;
};

// activation(gate) * up as operand of the next product; made of a program's own operations (fuse_gated).
struct GatedLinearOp {
  TensorId out, act;
  std::shared_ptr<const PackedMatrix> gate, up;
  Activation activation;
};

using Operation = std::variant<EmbedOp, AnglesOp, TakeRowsOp, RmsNormOp, PrepareOp, LinearOp, RopeOp, StoreKvOp, AttentionOp, GatedOp, AddOp, LayerNormOp,
                               ActivateOp, WholeAttentionOp, RouteOp, ExpertsOp, GatedLinearOp>;

// Tensors that an operation reads, and the one that it writes (kNone: none).
std::vector<TensorId> inputs_of(const Operation& operation);
TensorId output_of(const Operation& operation);

// Two products, gated and prepare, of whose results only the last is read, as one operation: no bit changes.
std::vector<Operation> fuse_gated(std::vector<Operation> operations, TensorId output, const KernelTable& kernels);

struct Region {
  enum class Kind : uint8_t { Rows, Products, Attention, Whole, Experts } kind;
  RowSpace rows;
  size_t begin, end;  // operations
};

std::vector<Region> cut_regions(const std::vector<Tensor>& tensors, const std::vector<Operation>& operations);

constexpr int64_t kRowsAtOnce = 32;  // the most rows of a piece: of a prompt they hold a whole tile of KV memory, wherever it begins

struct ArenaLayout {
  std::vector<int64_t> offset;  // of each tensor: in the arena, or of its rows of a piece among what a thread keeps
  std::vector<bool> is_kept;    // by a thread: tensors that no region but one of rows touches have rows for the piece in hand only
  int64_t bytes, piece_bytes;
};

ArenaLayout lay_out(const std::vector<Tensor>& tensors, const std::vector<Operation>& operations, const std::vector<Region>& regions, TensorId output,
                    int64_t max_tokens, int64_t max_samples);

class Program {
 public:
  // Throws std::invalid_argument when an operation does not fit its tensors, its weight or the cache, or reads a tensor that
  // no earlier one has written. `kv` may have no memory (data null) if the program is only measured.
  Program(std::shared_ptr<Device> device, KvCache kv, std::vector<Tensor> tensors, std::vector<Operation> operations, TensorId output,
          int64_t max_tokens, int64_t max_samples);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Bytes that the program holds beside weights and KV.
  int64_t num_bytes() const { return arena_bytes_; }
  int64_t num_regions() const { return static_cast<int64_t>(regions_.size()); }

  // Returns the output [num_samples, width], valid until the next call. Calls from several threads queue. Throws std::invalid_argument
  // for a batch that check_batch refuses, ids out of the vocabulary, or more tokens or samples than the program takes.
  const float* run(const Batch& batch);
  // Where the time goes: while tracing, each thread writes down when it passed through each region, in nanoseconds of
  // steady_clock, and how much of that it waited for pieces of others.
  struct Span {
    int64_t thread, region, begin_ns, end_ns, waited_ns;
  };
  void set_tracing(bool on);
  // Returns the spans since the last call, those of a thread in order.
  std::vector<Span> take_trace();
  // What the regions do: "rms_norm prepare", "linear q4_1 576x576 576x192", "attention".
  std::vector<std::string> region_names() const;
  int64_t output_width() const { return tensors_[static_cast<size_t>(output_)].row_bytes / 4; }

 private:
  struct Step;
  struct Stages {
    Cut cut{};          // rows, or pairs of panels for each band; unused by attention
    int64_t bands = 1;  // of rows
    Stage work, fold;  // fold: of split contexts
    Stage experts[ExpertsWork::kStages];
  };

  uint8_t* at(TensorId id, int64_t row) const;
  float* floats(TensorId id, int64_t row = 0) const { return reinterpret_cast<float*>(at(id, row)); }
  int64_t width(TensorId id) const { return tensors_[static_cast<size_t>(id)].row_bytes / 4; }
  int64_t heads_of(const AttentionOp& op) const { return width(op.q) / (kv_.num_kv_heads * kv_.head_dim); }  // a KV head

  void deal(const Step& step);
  std::string name_of(const Region& region) const;
  void run_rows(const Step& step, const Region& region, int64_t begin, int64_t end, int thread) const;
  void run_row_operation(const Step& step, const Operation& operation, int64_t begin, int64_t end, int thread) const;
  void run_products(const Step& step, const Region& region, const Stages& stages, int64_t piece) const;
  void run_product(const Operation& operation, int64_t num_rows, int64_t row, int64_t count, int64_t begin, int64_t end) const;
  int64_t panels_of(const Region& region) const;
  const AttentionPlan& plan_of(const Step& step, const Region& region) const;
  void run_attention(const Step& step, const Region& region, Stages& stages, int thread) const;
  void run_experts(const Step& step, const Region& region, Stages& stages) const;
  int64_t whole_heads(const Region& region) const;
  void run_whole_attention(const Step& step, const Region& region, int64_t piece, int thread) const;

  std::shared_ptr<Device> device_;
  std::mutex callers_;
  KvCache kv_;
  std::vector<Tensor> tensors_;
  std::vector<Operation> operations_;
  TensorId output_;
  int64_t max_tokens_, max_samples_, num_groups_ = 1;
  std::vector<Region> regions_;
  ArenaLayout layout_;
  bool tracing_ = false;
  std::vector<std::vector<Span>> traces_;  // of each thread
  std::unique_ptr<Stages[]> stages_;  // of each region
  int64_t scratch_bytes_ = kAttentionScratchBytes;  // of a thread
  int64_t scratch_offset_ = 0, states_offset_ = 0, experts_offset_ = 0, kept_offset_ = 0, arena_bytes_ = 0;
  std::unique_ptr<Pages> pages_;
  uint8_t* arena_ = nullptr;
};

}  // namespace octavo
