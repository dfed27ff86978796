#include "octavo/program.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace octavo {
namespace {

constexpr int64_t kPiecesPerThread = 8;
constexpr int64_t kMaxGroups = 256;

// The rows of many tokens are parted into bands, of at least so many rows: a thread stays with a band from stage to stage and finds its values
// in its own caches. Every band unpacks all weights, which fewer rows do not repay.
constexpr int64_t kBandRows = 64, kBandUnit = 32;

int64_t bands_of(int64_t tokens, int threads) { return std::clamp<int64_t>(tokens / kBandRows, 1, std::min<int64_t>(threads, Stage::kMaxHomes)); }

// The first row of a band.
int64_t band_begin(int64_t rows, int64_t bands, int64_t band) { return std::min(rows, (rows + kBandUnit - 1) / kBandUnit * band / bands * kBandUnit); }

void must(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(std::string("program: ") + message);
}

// Checks one operation after another against the tensors; see Program's constructor.
class Checker {
 public:
  Checker(const std::vector<Tensor>& tensors, const KvCache& kv) : tensors_(tensors), kv_(kv), written_(tensors.size(), false) {}

  void check(const Operation& operation) {
    for (const TensorId id : inputs_of(operation)) must(is_written(id), "an operation reads a tensor that is not written yet");
    std::visit([this](const auto& op) { check_shapes(op); }, operation);
    const TensorId out = output_of(operation);
    if (out == kNone) return;
    must(!is_written(out), "a tensor is written twice");
    written_[static_cast<size_t>(out)] = true;
  }

  bool is_written(TensorId id) const { return written_.at(static_cast<size_t>(id)); }

 private:
  const Tensor& tensor(TensorId id) const { return tensors_.at(static_cast<size_t>(id)); }
  int64_t width(TensorId id) const { return tensor(id).row_bytes / 4; }
  bool is_same(TensorId a, TensorId b) const { return tensor(a).rows == tensor(b).rows && tensor(a).row_bytes == tensor(b).row_bytes; }
  bool is_tokens(TensorId id) const { return tensor(id).rows == RowSpace::Tokens; }
  static int64_t operand_bytes(ActKind kind, int64_t k, int64_t heads) { return heads * static_cast<int64_t>(act_row_bytes(kind, k)); }
  void check_layer(int64_t group, int64_t layer) const {
    must(group >= 0 && group < kMaxGroups && layer >= 0 && layer < kv_.num_layers, "a layer is not in the cache");
  }

  void check_shapes(const EmbedOp& op) const { must(is_tokens(op.out) && width(op.out) == op.weight->k, "embed does not fit its weight"); }
  void check_shapes(const AnglesOp& op) const { must(is_tokens(op.out) && width(op.out) == 2 * op.rotary.pairs(), "angles do not fit"); }
  void check_shapes(const TakeRowsOp& op) const {
    must(is_tokens(op.x) && !is_tokens(op.out) && width(op.x) == width(op.out), "take_rows goes from tokens to samples");
  }
  void check_shapes(const RmsNormOp& op) const {
    must(is_same(op.x, op.out) && !op.weight->empty() && width(op.x) % static_cast<int64_t>(op.weight->size()) == 0, "rms_norm does not fit its weight");
  }
  void check_shapes(const LayerNormOp& op) const {
    must(is_same(op.x, op.out) && width(op.x) == static_cast<int64_t>(op.weight->size()) && op.bias->size() == op.weight->size(), "layer_norm does not fit its weight");
  }
  void check_shapes(const ActivateOp& op) const { must(is_same(op.x, op.out), "activate does not fit"); }
  void check_shapes(const WholeAttentionOp& op) const {
    must(is_tokens(op.q) && is_same(op.q, op.k) && is_same(op.q, op.v) && is_same(op.q, op.out), "whole_attention does not fit");
    must(op.head_dim > 0 && width(op.q) % op.head_dim == 0, "whole_attention does not fit its heads");
  }
  void check_shapes(const PrepareOp& op) const {
    must(op.heads > 0 && width(op.x) % op.heads == 0, "prepare does not fit its heads");
    must(tensor(op.x).rows == tensor(op.out).rows && tensor(op.out).row_bytes == operand_bytes(op.kind, width(op.x) / op.heads, op.heads), "prepare does not fit");
  }
  void check_shapes(const LinearOp& op) const {
    must(tensor(op.act).rows == tensor(op.out).rows && width(op.out) == op.weight->n, "linear does not fit its weight");
    must(op.heads == 1 || (op.heads > 0 && op.weight->n % (op.heads * kPanel) == 0), "linear: a head's channels must be a multiple of 16");
    must(tensor(op.act).row_bytes == operand_bytes(op.weight->act, op.weight->k, op.heads), "linear does not fit its operand");
    must(op.bias == nullptr || static_cast<int64_t>(op.bias->size()) == op.weight->n, "linear does not fit its bias");
    must(op.residual == kNone || is_same(op.residual, op.out), "linear does not fit its residual");
  }
  void check_shapes(const RopeOp& op) const {
    must(is_same(op.x, op.out) && is_tokens(op.x) && is_tokens(op.angles), "rope does not fit");
    must(op.head_dim > 0 && width(op.x) % op.head_dim == 0 && width(op.angles) <= op.head_dim, "rope does not fit its heads");
  }
  void check_shapes(const StoreKvOp& op) const {
    must(is_tokens(op.k) && is_tokens(op.v) && width(op.k) == kv_.num_kv_heads * kv_.head_dim, "store_kv does not fit");
    must(width(op.v) == (kv_.is_latent() ? kv_.rotary_dim : width(op.k)), "store_kv does not fit");
    check_layer(op.layer_group, op.layer);
  }
  void check_shapes(const AttentionOp& op) const {
    const int64_t vectors = kv_.num_kv_heads * kv_.head_dim;
    must(is_same(op.q, op.out) && is_tokens(op.q) && width(op.q) % vectors == 0, "attention does not fit the KV heads");
    must(op.window > 0 && op.chunk > 0, "attention: a window and chunk of at least 1");
    must((op.q_rotary != kNone) == kv_.is_latent(), "attention is latent where the KV memory is");
    if (kv_.is_latent()) must(is_tokens(op.q_rotary) && width(op.q_rotary) == width(op.q) / vectors * kv_.rotary_dim, "attention does not fit its rotary part");
    check_layer(op.layer_group, op.layer);
  }
  void check_shapes(const GatedOp& op) const { must(is_same(op.gate, op.out) && is_same(op.up, op.out), "gated does not fit"); }
  void check_shapes(const AddOp& op) const { must(is_same(op.x, op.out) && is_same(op.y, op.out), "add does not fit"); }

  void check_shapes(const GatedLinearOp&) const { must(false, "gated products are the program's own"); }

  void check_shapes(const RouteOp& op) {
    check_routing(op.routing);
    must(is_same(op.logits, op.out) && width(op.out) == op.routing.experts, "route does not fit its experts");
    must(op.bias == nullptr || static_cast<int64_t>(op.bias->size()) == op.routing.experts, "route does not fit its bias");
    picks_[op.out] = op.routing.picks;
  }
  void check_shapes(const ExpertsOp& op) const {
    const auto routed = picks_.find(op.weights);
    must(routed != picks_.end() && routed->second <= op.experts->picks, "the weights of experts come from route, which picks no more than they take");
    must(is_same(op.x, op.out) && tensor(op.weights).rows == tensor(op.x).rows, "experts do not fit");
    must(width(op.x) == op.experts->hidden() && width(op.weights) == op.experts->count(), "experts do not fit their weights");
  }

  const std::vector<Tensor>& tensors_;
  const KvCache& kv_;
  std::vector<bool> written_;
  std::map<TensorId, int64_t> picks_;  // of the tensors that route has written
};

int64_t now_ns() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

const int32_t* ids_of(const Batch& batch, Ids ids) {
  return ids == Ids::Tokens ? batch.token_ids : ids == Ids::Positions ? batch.positions : batch.token_types;
}

const char* name_of(Ids ids) { return ids == Ids::Tokens ? "token id" : ids == Ids::Positions ? "position" : "token type"; }

const char* verb_of(const Operation& operation) {
  constexpr const char* verbs[] = {"embed", "angles", "take_rows", "rms_norm", "prepare", "linear", "rope", "store_kv", "attention", "gated", "add", "layer_norm",
                                   "activate", "whole_attention", "route", "experts", "gated_linear"};
  static_assert(std::size(verbs) == std::variant_size_v<Operation>);
  return verbs[operation.index()];
}

// Of a product: the weight whose panels are cut into pieces. Null for other operations.
const PackedMatrix* weight_of(const Operation& operation) {
  if (const auto* op = std::get_if<LinearOp>(&operation)) return op->weight.get();
  if (const auto* op = std::get_if<GatedLinearOp>(&operation)) return op->gate.get();
  return nullptr;
}

}  // namespace

struct Program::Step {
  struct Plan {
    int64_t layer_group, heads, window, chunk;
    AttentionPlan plan;
  };
  const Batch& batch;
  std::vector<Plan> plans;

  const AttentionPlan* plan_of(int64_t heads, const AttentionOp& op) const {
    for (const Plan& p : plans) {
      if (p.layer_group == op.layer_group && p.heads == heads && p.window == op.window && p.chunk == op.chunk) return &p.plan;
    }
    return nullptr;
  }
  int64_t count(RowSpace rows) const { return rows == RowSpace::Tokens ? batch.num_tokens : batch.num_samples; }
};

Program::Program(std::shared_ptr<Device> device, KvCache kv, std::vector<Tensor> tensors, std::vector<Operation> operations, TensorId output,
                 int64_t max_tokens, int64_t max_samples)
    : device_(std::move(device)),
      kv_(kv),
      tensors_(std::move(tensors)),
      operations_(std::move(operations)),
      output_(output),
      max_tokens_(max_tokens),
      max_samples_(max_samples) {
  must(max_tokens > 0 && max_samples > 0 && max_tokens <= 1 << 20 && max_samples <= 1 << 20, "tokens and samples must lie in 1..2^20");
  for (const Tensor& tensor : tensors_) must(tensor.row_bytes > 0 && tensor.row_bytes <= 1 << 28 && tensor.row_bytes % 4 == 0, "a tensor's row has a bad size");
  Checker checker(tensors_, kv_);
  for (const Operation& operation : operations_) {
    checker.check(operation);
    if (const auto* op = std::get_if<StoreKvOp>(&operation)) num_groups_ = std::max(num_groups_, op->layer_group + 1);
    if (const auto* op = std::get_if<AttentionOp>(&operation)) num_groups_ = std::max(num_groups_, op->layer_group + 1);
  }
  must(checker.is_written(output_) && tensors_[static_cast<size_t>(output_)].rows == RowSpace::Samples, "the output must be a tensor of samples");

  operations_ = fuse_gated(std::move(operations_), output_, device_->kernels);
  regions_ = cut_regions(tensors_, operations_);
  stages_ = std::make_unique<Stages[]>(regions_.size());
  layout_ = lay_out(tensors_, operations_, regions_, output_, max_tokens, max_samples);
  for (const Operation& operation : operations_) {
    if (const auto* op = std::get_if<WholeAttentionOp>(&operation)) {
      scratch_bytes_ = std::max<int64_t>(scratch_bytes_, 4 * whole_attention_scratch(op->head_dim, max_tokens));
    }
  }
  scratch_offset_ = layout_.bytes + 64;  // kernels may read a line past a row's end
  states_offset_ = scratch_offset_ + device_->pool.size() * scratch_bytes_;
  experts_offset_ = states_offset_ + kSplitBytes;
  int64_t experts_bytes = 0;
  for (const Operation& operation : operations_) {
    if (const auto* op = std::get_if<ExpertsOp>(&operation)) {
      const int64_t rows = tensors_[static_cast<size_t>(op->out)].rows == RowSpace::Tokens ? max_tokens : max_samples;
      experts_bytes = std::max(experts_bytes, ExpertsWork::bytes(*op->experts, rows));
    }
  }
  kept_offset_ = experts_offset_ + experts_bytes;
  arena_bytes_ = kept_offset_ + device_->pool.size() * layout_.piece_bytes + 64;
  pages_ = std::make_unique<Pages>(static_cast<size_t>(arena_bytes_));
  arena_ = pages_->data();
}

uint8_t* Program::at(TensorId id, int64_t row) const {
  const auto i = static_cast<size_t>(id);
  return arena_ + layout_.offset[i] + row * tensors_[i].row_bytes;
}

const float* Program::run(const Batch& batch) {
  std::lock_guard one_caller(callers_);
  must(kv_.data != nullptr, "there is no KV memory");
  must(batch.num_tokens <= max_tokens_ && batch.num_samples <= max_samples_, "the step has more tokens or samples than the program takes");
  must(batch.num_groups == num_groups_, "the step does not have the blocks of every layer group");
  check_batch(batch, kv_);
  Step step{batch, {}};
  for (const Operation& operation : operations_) {
    if (const auto* embed = std::get_if<EmbedOp>(&operation)) {
      must(ids_of(batch, embed->ids) != nullptr, "the step has no token types");
      check_ids(octavo::name_of(embed->ids), ids_of(batch, embed->ids), batch.num_tokens, embed->weight->n);
    }
    if (std::holds_alternative<WholeAttentionOp>(operation)) check_whole_rows(batch);
    if (const auto* op = std::get_if<AttentionOp>(&operation)) {
      const int64_t heads = heads_of(*op);
      if (step.plan_of(heads, *op) == nullptr) {
        AttentionPlan plan(batch, kv_, op->layer_group, heads, op->window, op->chunk, device_->pool.size());
        step.plans.push_back({op->layer_group, heads, op->window, op->chunk, std::move(plan)});
      }
    }
  }
  deal(step);
  device_->pool.run([&](int thread) {
    std::vector<Span>* trace = tracing_ ? &traces_[static_cast<size_t>(thread)] : nullptr;
    int64_t began = trace != nullptr ? now_ns() : 0;
    wait_time.on = trace != nullptr;
    for (size_t i = 0; i < regions_.size(); ++i) {
      const Region& region = regions_[i];
      Stages& stages = stages_[i];
      const Cut& cut = stages.cut;
      const int64_t home = thread * stages.bands / device_->pool.size();
      switch (region.kind) {
        case Region::Kind::Rows: stages.work.work([&](int64_t piece) { run_rows(step, region, cut.begin(piece), cut.begin(piece + 1), thread); }, home); break;
        case Region::Kind::Products: stages.work.work([&](int64_t piece) { run_products(step, region, stages, piece); }, home); break;
        case Region::Kind::Attention: run_attention(step, region, stages, thread); break;
        case Region::Kind::Experts: run_experts(step, region, stages); break;
        case Region::Kind::Whole: stages.work.work([&](int64_t piece) { run_whole_attention(step, region, piece, thread); }); break;
      }
      if (trace != nullptr) {
        const int64_t now = now_ns();
        trace->push_back({thread, static_cast<int64_t>(i), began, now, std::exchange(wait_time.ns, 0)});
        began = now;
      }
    }
    wait_time.on = false;
  });
  return floats(output_);
}

// Cuts every region of a step into pieces.
void Program::deal(const Step& step) {
  const int64_t most = kPiecesPerThread * device_->pool.size();
  for (size_t i = 0; i < regions_.size(); ++i) {
    const Region& region = regions_[i];
    Stages& stages = stages_[i];
    if (region.kind == Region::Kind::Attention) {
      const AttentionPlan& plan = plan_of(step, region);
      stages.work.reset(plan.num_pieces(), std::min<int64_t>(device_->pool.size(), Stage::kMaxHomes));  // a thread knows its next piece
      stages.fold.reset(plan.num_folds());
    } else if (region.kind == Region::Kind::Whole) {
      stages.work.reset(step.batch.num_rows * whole_heads(region));
    } else if (region.kind == Region::Kind::Experts) {
      const Experts& experts = *std::get<ExpertsOp>(operations_[region.begin]).experts;
      for (int s = 0; s < ExpertsWork::kStages; ++s) {
        stages.experts[s].reset(ExpertsWork::pieces(experts, s, step.count(region.rows), device_->pool.size()));
      }
    } else {
      const int64_t rows = step.count(region.rows);
      stages.bands = region.rows == RowSpace::Tokens ? bands_of(rows, device_->pool.size()) : 1;
      if (region.kind == Region::Kind::Rows) {
        stages.cut = Cut::of(rows, most, 1, kRowsAtOnce);
        stages.work.reset(stages.cut.pieces, stages.bands);
      } else {
        stages.cut = Cut::of(rows > 0 ? (panels_of(region) + 1) / 2 : 0, most / stages.bands);
        stages.work.reset(stages.bands * stages.cut.pieces, stages.bands);
      }
    }
  }
}

void Program::set_tracing(bool on) {
  std::lock_guard one_caller(callers_);
  tracing_ = on;
  traces_.assign(static_cast<size_t>(device_->pool.size()), {});
}

std::vector<Program::Span> Program::take_trace() {
  std::lock_guard one_caller(callers_);
  std::vector<Span> spans;
  for (std::vector<Span>& trace : traces_) {
    spans.insert(spans.end(), trace.begin(), trace.end());
    trace.clear();
  }
  return spans;
}

std::vector<std::string> Program::region_names() const {
  std::vector<std::string> names;
  for (const Region& region : regions_) names.push_back(name_of(region));
  return names;
}

std::string Program::name_of(const Region& region) const {
  std::string name;
  const auto add = [&](const std::string& word) { name += (name.empty() ? "" : " ") + word; };
  for (size_t i = region.begin; i < region.end; ++i) {
    const PackedMatrix* weight = weight_of(operations_[i]);
    const std::string verb = verb_of(operations_[i]);
    if (weight == nullptr || i == region.begin || verb != verb_of(operations_[i - 1])) add(verb);  // products of one verb are one list of shapes
    if (weight != nullptr) add(std::string(format_info(weight->format).label) + " " + std::to_string(weight->n) + "x" + std::to_string(weight->k));
  }
  return name;
}

void Program::run_rows(const Step& step, const Region& region, int64_t begin, int64_t end, int thread) const {
  for (size_t i = region.begin; i < region.end; ++i) run_row_operation(step, operations_[i], begin, end, thread);
}

void Program::run_row_operation(const Step& step, const Operation& operation, int64_t begin, int64_t end, int thread) const {
  const auto floats = [&](TensorId id, int64_t row) {
    const auto i = static_cast<size_t>(id);
    if (!layout_.is_kept[i]) return this->floats(id, row);
    return reinterpret_cast<float*>(arena_ + kept_offset_ + thread * layout_.piece_bytes + layout_.offset[i] + (row - begin) * tensors_[i].row_bytes);
  };
  const KernelTable& kernels = device_->kernels;
  const Batch& batch = step.batch;
  const int64_t rows = end - begin;
  if (const auto* op = std::get_if<EmbedOp>(&operation)) {
    kernels.embed(*op->weight, ids_of(batch, op->ids) + begin, rows, floats(op->out, begin), width(op->out));
  } else if (const auto* op = std::get_if<AnglesOp>(&operation)) {
    op->rotary.fill(batch.positions + begin, rows, floats(op->out, begin));
  } else if (const auto* op = std::get_if<TakeRowsOp>(&operation)) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(floats(op->out, r), at(op->x, batch.sample_rows[r]), static_cast<size_t>(tensors_[static_cast<size_t>(op->x)].row_bytes));
    }
  } else if (const auto* op = std::get_if<RmsNormOp>(&operation)) {
    const auto size = static_cast<int64_t>(op->weight->size());
    kernels.rms_norm(floats(op->x, begin), width(op->x), rows, width(op->x) / size, size, op->weight->data(), op->eps, floats(op->out, begin),
                     width(op->out));
  } else if (const auto* op = std::get_if<LayerNormOp>(&operation)) {
    const int64_t size = width(op->x);
    kernels.layer_norm(floats(op->x, begin), size, rows, size, op->weight->data(), op->bias->data(), op->eps, floats(op->out, begin), size);
  } else if (const auto* op = std::get_if<ActivateOp>(&operation)) {
    kernels.activate(op->activation, floats(op->x, begin), rows * width(op->x), floats(op->out, begin));
  } else if (const auto* op = std::get_if<PrepareOp>(&operation)) {
    const int64_t k = width(op->x) / op->heads, count = step.count(tensors_[static_cast<size_t>(op->out)].rows);
    for (int64_t h = 0; h < op->heads; ++h) {
      uint8_t* to = at(op->out, 0) + (h * count + begin) * static_cast<int64_t>(act_row_bytes(op->kind, k));
      kernels.prepare_act(op->kind, floats(op->x, begin) + h * k, width(op->x), rows, k, to);
    }
  } else if (const auto* op = std::get_if<RopeOp>(&operation)) {
    const int64_t dim = width(op->angles);
    kernels.rope(floats(op->x, begin), width(op->x), rows, width(op->x) / op->head_dim, op->head_dim, dim, op->interleaved, floats(op->angles, begin),
                 floats(op->angles, begin) + dim / 2, dim, floats(op->out, begin), width(op->out));
  } else if (const auto* op = std::get_if<StoreKvOp>(&operation)) {
    kernels.store_kv(kv_, op->layer, floats(op->k, begin), width(op->k), floats(op->v, begin), width(op->v), rows, batch.slots(op->layer_group) + begin);
  } else if (const auto* op = std::get_if<GatedOp>(&operation)) {
    const int64_t size = width(op->out);
    kernels.gated(op->activation, floats(op->gate, begin), size, floats(op->up, begin), size, rows, size, floats(op->out, begin), size);
  } else if (const auto* op = std::get_if<RouteOp>(&operation)) {
    for (int64_t r = begin; r < end; ++r) route_row(op->routing, floats(op->logits, r), op->bias == nullptr ? nullptr : op->bias->data(), floats(op->out, r));
  } else if (const auto* op = std::get_if<AddOp>(&operation)) {
    kernels.add(floats(op->x, begin), floats(op->y, begin), rows * width(op->out), floats(op->out, begin));
  }
}

int64_t Program::panels_of(const Region& region) const {
  int64_t panels = 0;
  for (size_t i = region.begin; i < region.end; ++i) panels += weight_of(operations_[i])->panels();
  return panels;
}

void Program::run_products(const Step& step, const Region& region, const Stages& stages, int64_t piece) const {
  const int64_t num_rows = step.count(region.rows), band = piece / stages.cut.pieces, part = piece % stages.cut.pieces;
  const int64_t row = band_begin(num_rows, stages.bands, band), count = band_begin(num_rows, stages.bands, band + 1) - row;
  const int64_t begin = 2 * stages.cut.begin(part), end = 2 * stages.cut.begin(part + 1);  // whole pairs of panels, which kernels take together
  int64_t base = 0;  // first panel of an operation, among the panels of all
  for (size_t i = region.begin; i < region.end; ++i) {
    const int64_t panels = weight_of(operations_[i])->panels();
    const auto inside = [&](int64_t panel) { return std::clamp<int64_t>((panel - base + 1) / 2 * 2, 0, panels); };  // whole pairs of the operation's own
    if (inside(begin) < inside(end)) run_product(operations_[i], num_rows, row, count, inside(begin), inside(end));
    base += panels;
  }
}

// Panels [begin, end) and rows [row, row + count) of num_rows.
void Program::run_product(const Operation& operation, int64_t num_rows, int64_t row, int64_t count, int64_t begin, int64_t end) const {
  const KernelTable& kernels = device_->kernels;
  if (const auto* op = std::get_if<GatedLinearOp>(&operation)) {
    return kernels.gated_linear(*op->gate, *op->up, op->activation, at(op->act, row), count, at(op->out, row), begin, end);
  }
  const auto& op = std::get<LinearOp>(operation);
  const int64_t panels = op.weight->panels() / op.heads;
  for (int64_t p = begin, last; p < end; p = last) {  // head by head
    last = std::min(end, (p / panels + 1) * panels);
    const uint8_t* act = at(op.act, 0) + (p / panels * num_rows + row) * static_cast<int64_t>(act_row_bytes(op.weight->act, op.weight->k));
    kernels.linear(*op.weight, act, count, op.bias == nullptr ? nullptr : op.bias->data(), op.residual == kNone ? nullptr : floats(op.residual, row),
                   floats(op.out, row), width(op.out), p, last);
  }
}

const AttentionPlan& Program::plan_of(const Step& step, const Region& region) const {
  const auto& op = std::get<AttentionOp>(operations_[region.begin]);
  return *step.plan_of(heads_of(op), op);
}

void Program::run_attention(const Step& step, const Region& region, Stages& stages, int thread) const {
  const auto& op = std::get<AttentionOp>(operations_[region.begin]);
  const AttentionPlan& plan = plan_of(step, region);
  const AttentionPlan::Layer layer{op.layer, floats(op.q), op.q_rotary == kNone ? nullptr : floats(op.q_rotary), floats(op.out), op.scale};
  uint8_t* scratch = arena_ + scratch_offset_ + thread * scratch_bytes_;
  auto* states = reinterpret_cast<float*>(arena_ + states_offset_);
  stages.work.work([&](int64_t piece) { plan.work(device_->kernels, kv_, layer, piece, scratch, states); }, thread);
  if (plan.is_split()) stages.fold.work([&](int64_t piece) { plan.fold(device_->kernels, kv_, layer, piece, scratch, states); });
}

void Program::run_experts(const Step& step, const Region& region, Stages& stages) const {
  const auto& op = std::get<ExpertsOp>(operations_[region.begin]);
  const ExpertsWork work(*op.experts, floats(op.x), floats(op.weights), step.count(region.rows), device_->pool.size(), floats(op.out), arena_ + experts_offset_);
  for (int s = 0; s < ExpertsWork::kStages; ++s) {
    stages.experts[s].work([&](int64_t piece) { work.work(device_->kernels, s, piece); });
  }
}

int64_t Program::whole_heads(const Region& region) const {
  const auto& op = std::get<WholeAttentionOp>(operations_[region.begin]);
  return width(op.q) / op.head_dim;
}

void Program::run_whole_attention(const Step& step, const Region& region, int64_t piece, int thread) const {
  const auto& op = std::get<WholeAttentionOp>(operations_[region.begin]);
  const int64_t ld = width(op.q), heads = ld / op.head_dim, at = piece % heads * op.head_dim;
  const int64_t first = step.batch.query_start[piece / heads], length = step.batch.query_start[piece / heads + 1] - first;
  const WholeRow row{floats(op.q, first) + at, floats(op.k, first) + at, floats(op.v, first) + at, ld, length, op.head_dim, op.scale};
  device_->kernels.whole_attention(row, floats(op.out, first) + at, ld, reinterpret_cast<float*>(arena_ + scratch_offset_ + thread * scratch_bytes_));
}

}  // namespace octavo
