// A whole small program - attention over KV memory, quantised and bf16 products, experts, and the sampler behind it - on several
// threads: on every ISA of this machine the bits of each row are those that it has alone on one thread, prefilled in chunks.
// Under ThreadSanitizer this is what looks at the engine's own sharing of work.
#include "octavo/program.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include "gguf_blocks.h"
#include "octavo/sampler.h"

using namespace octavo;

namespace {

constexpr int64_t kVocab = 96, kHidden = 64, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kInner = 96, kExperts = 4, kPicks = 2;
constexpr int64_t kLayers = 2, kBlocksOfRow = 20, kSteps = 3, kLongest = 300;
constexpr int64_t kPrompts[] = {kLongest, 37, 1};  // the first is long enough to be split over threads when it decodes
constexpr int64_t kRows = std::size(kPrompts);

int failures = 0;

// One program with its KV memory. Copies of the same model on any device are equal. Where gate and up share their operand, they and what
// follows may become one operation; else each step stands for itself.
class Engine {
 public:
  explicit Engine(std::shared_ptr<Device> device, bool shares_operand = false)
      : device_(std::move(device)), shares_operand_(shares_operand), kv_(shape()), program_(make()), sampler_(device_) {}

  // Whether the program has one operation for gate, up and their product.
  bool is_gated_in_one() const {
    const std::vector<std::string> names = program_.region_names();
    return std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.find("gated_linear") != std::string::npos; });
  }

  struct Row {
    int64_t row, start, count;  // tokens start .. start + count - 1 of the row
  };

  void set_tracing(bool on) { program_.set_tracing(on); }

  // Returns the logits of each row's last token, one after the other.
  std::vector<float> run(const std::vector<Row>& rows) {
    std::vector<int32_t> ids, positions, query_start{0}, context, blocks, samples;
    std::vector<int64_t> slots;
    for (const Row& r : rows) {
      for (int64_t position = r.start; position < r.start + r.count; ++position) {
        ids.push_back(static_cast<int32_t>((7 * position + 13 * r.row) % kVocab));
        positions.push_back(static_cast<int32_t>(position));
        slots.push_back(block(r.row, position / kTile) * kTile + position % kTile);
      }
      for (int64_t i = 0; i < kBlocksOfRow; ++i) blocks.push_back(static_cast<int32_t>(block(r.row, i)));
      query_start.push_back(static_cast<int32_t>(ids.size()));
      context.push_back(static_cast<int32_t>(r.start + r.count));
      samples.push_back(static_cast<int32_t>(ids.size()) - 1);
    }
    Batch batch;
    batch.num_tokens = static_cast<int64_t>(ids.size());
    batch.num_rows = batch.num_samples = static_cast<int64_t>(rows.size());
    batch.table_width = kBlocksOfRow;
    batch.token_ids = ids.data();
    batch.positions = positions.data();
    batch.query_start = query_start.data();
    batch.context_len = context.data();
    batch.block_table = blocks.data();
    batch.slot_mapping = slots.data();
    batch.sample_rows = samples.data();
    const float* logits = program_.run(batch);
    return {logits, logits + batch.num_samples * kVocab};
  }

  // Returns one token for each row of logits, drawn from its 20 likeliest.
  std::vector<int32_t> sample(const std::vector<float>& logits) {
    const int64_t rows = static_cast<int64_t>(logits.size()) / kVocab;
    const auto count = static_cast<size_t>(rows);
    const std::vector<float> ones(count, 1.0f), zeros(count, 0.0f), most(count, 0.9f);
    const std::vector<int32_t> top_k(count, 20), none(count, 0), starts(count + 1, 0), given(count, -1);
    const std::vector<uint64_t> seeds(count, 5), positions(count, 9);
    const auto processed = std::make_unique<bool[]>(count);
    const SamplingBatch how{.temperature = ones.data(), .top_p = most.data(), .min_p = zeros.data(), .repetition_penalty = ones.data(),
                            .presence_penalty = zeros.data(), .frequency_penalty = zeros.data(), .typical_p = ones.data(), .top_n_sigma = zeros.data(),
                            .xtc_probability = zeros.data(), .xtc_threshold = zeros.data(), .top_k = top_k.data(), .num_logprobs = none.data(),
                            .given = given.data(), .wants_processed = processed.get(), .seed = seeds.data(), .position = positions.data(),
                            .banned_start = starts.data(), .banned_ids = nullptr, .bias_start = starts.data(), .bias_ids = nullptr, .bias_values = nullptr,
                            .seen_start = starts.data(), .seen_ids = nullptr, .seen_counts = nullptr, .allowed_row = nullptr, .allowed = nullptr, .allowed_words = 0};
    std::vector<int32_t> tokens(count, -1), ranks(count, 0);
    std::vector<float> logprobs(count, 0);
    const auto is_nan = std::make_unique<bool[]>(count);
    sampler_.sample(logits.data(), rows, kVocab, how, {tokens.data(), is_nan.get(), logprobs.data(), ranks.data(), 0, nullptr, nullptr});
    return tokens;
  }

 private:
  static KvCache shape() {
    KvCache kv;
    kv.type = KvType::BF16;
    kv.num_layers = kLayers;
    kv.num_kv_heads = kKvHeads;
    kv.head_dim = kHeadDim;
    kv.num_blocks = kRows * kBlocksOfRow;
    return kv;
  }

  static int64_t block(int64_t row, int64_t index) { return (index * kRows + row) % (kRows * kBlocksOfRow); }

  std::shared_ptr<const PackedMatrix> matrix(Format format, int64_t n, int64_t k) {
    const std::vector<uint8_t> bytes = octavo_test::random_blocks(format, n * k, random_);
    return std::make_shared<PackedMatrix>(pack_matrix(format, n, k, bytes.data(), bytes.size(), device_->kernels.quantised_act, device_->pool));
  }

  TensorId tensor(int64_t row_bytes, RowSpace rows = RowSpace::Tokens) {
    tensors_.push_back({rows, row_bytes});
    return static_cast<TensorId>(tensors_.size()) - 1;
  }

  TensorId floats(int64_t width, RowSpace rows = RowSpace::Tokens) { return tensor(width * 4, rows); }

  TensorId prepare(TensorId x, const PackedMatrix& weight) {
    const TensorId operand = tensor(static_cast<int64_t>(act_row_bytes(weight.act, weight.k)), tensors_[static_cast<size_t>(x)].rows);
    operations_.push_back(PrepareOp{operand, x, weight.act, 1});
    return operand;
  }

  TensorId multiply(TensorId operand, std::shared_ptr<const PackedMatrix> weight, TensorId residual = kNone) {
    const TensorId out = floats(weight->n, tensors_[static_cast<size_t>(operand)].rows);
    operations_.push_back(LinearOp{out, operand, std::move(weight), nullptr, residual, 1});
    return out;
  }

  // Returns x times the matrix, plus `residual`.
  TensorId linear(TensorId x, std::shared_ptr<const PackedMatrix> weight, TensorId residual = kNone) {
    const TensorId operand = prepare(x, *weight);
    return multiply(operand, std::move(weight), residual);
  }

  // Each half of x times its own half of the matrix.
  TensorId linear_by_heads(TensorId x) {
    const auto weight = matrix(Format::BF16, kHidden, kHidden / 2);
    const TensorId operand = tensor(2 * static_cast<int64_t>(act_row_bytes(weight->act, weight->k))), out = floats(kHidden);
    operations_.push_back(PrepareOp{operand, x, weight->act, 2});
    operations_.push_back(LinearOp{out, operand, weight, nullptr, kNone, 2});
    return out;
  }

  TensorId norm(TensorId x) {
    const TensorId out = tensor(tensors_[static_cast<size_t>(x)].row_bytes, tensors_[static_cast<size_t>(x)].rows);
    operations_.push_back(RmsNormOp{out, x, std::make_shared<std::vector<float>>(kHidden, 1.0f), 1e-5f});
    return out;
  }

  TensorId attention(TensorId x, TensorId angles, int64_t layer) {
    const TensorId n = norm(x), q = linear(n, matrix(Format::BF16, kHeads * kHeadDim, kHidden));
    const TensorId k = linear(n, matrix(Format::BF16, kKvHeads * kHeadDim, kHidden)), v = linear(n, matrix(Format::BF16, kKvHeads * kHeadDim, kHidden));
    const TensorId turned_q = floats(kHeads * kHeadDim), turned_k = floats(kKvHeads * kHeadDim), out = floats(kHeads * kHeadDim);
    operations_.push_back(RopeOp{turned_q, q, angles, kHeadDim, false});
    operations_.push_back(RopeOp{turned_k, k, angles, kHeadDim, false});
    operations_.push_back(StoreKvOp{turned_k, v, 0, layer});
    operations_.push_back(AttentionOp{out, turned_q, kNone, 0, layer, 0.25f, INT64_MAX, INT64_MAX});
    return linear(out, matrix(Format::BF16, kHidden, kHeads * kHeadDim), x);
  }

  TensorId mlp(TensorId x) {
    const TensorId n = norm(x);
    const auto gate = matrix(Format::Q4_1, kInner, kHidden), up = matrix(Format::Q4_1, kInner, kHidden);
    const TensorId operand = prepare(n, *gate);
    multiply(operand, matrix(Format::Q4_1, 1, kHidden));  // a panel before those of gate and up, which are taken by two all the same
    const TensorId gate_sums = multiply(operand, gate);
    const TensorId up_sums = multiply(shares_operand_ ? operand : prepare(n, *up), up), out = floats(kInner);
    operations_.push_back(GatedOp{out, gate_sums, up_sums, Activation::Silu});
    return linear(out, matrix(Format::Q8_0, kHidden, kInner), x);
  }

  TensorId mixture(TensorId x) {
    const TensorId n = linear_by_heads(norm(x)), logits = linear(n, matrix(Format::F32, kExperts, kHidden)), weights = floats(kExperts), out = floats(kHidden), sum = floats(kHidden);
    const auto gate = matrix(Format::Q4_0, kExperts * kInner, kHidden), up = matrix(Format::Q4_0, kExperts * kInner, kHidden);
    const auto down = matrix(Format::Q4_0, kExperts * kHidden, kInner);
    operations_.push_back(RouteOp{weights, logits, nullptr, Routing{kExperts, kPicks, false, 1, 1, false, true, 1.0f}});
    const auto experts = std::make_shared<Experts>(make_experts(*gate, *up, *down, kExperts, kPicks, Activation::Silu));
    operations_.push_back(ExpertsOp{out, n, weights, experts});
    operations_.push_back(AddOp{sum, out, x});
    return sum;
  }

  Program make() {
    TensorId x = floats(kHidden), angles = floats(kHeadDim);
    operations_.push_back(EmbedOp{x, Ids::Tokens, matrix(Format::Q8_0, kVocab, kHidden)});
    operations_.push_back(AnglesOp{angles, Rotary{{1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003}, 1.0, false}});
    x = mlp(attention(x, angles, 0));
    x = mixture(attention(x, angles, 1));
    const TensorId last = floats(kHidden, RowSpace::Samples);
    operations_.push_back(TakeRowsOp{last, x});
    const TensorId logits = linear(norm(last), matrix(Format::Q8_0, kVocab, kHidden));
    return Program(device_, kv_.cache(), tensors_, operations_, logits, kRows * kLongest, kRows);
  }

  std::shared_ptr<Device> device_;
  bool shares_operand_;
  KvMemory kv_;
  std::mt19937 random_{1};
  std::vector<Tensor> tensors_;
  std::vector<Operation> operations_;
  Program program_;
  Sampler sampler_;
};

struct Answer {
  std::vector<float> logits;  // of all steps, row after row
  std::vector<int32_t> tokens;
};

// Every row on its own, its prompt in chunks of 100.
std::vector<Answer> answer_alone(Isa isa) {
  Engine engine(std::make_shared<Device>(1, isa));
  std::vector<Answer> answers(kRows);
  for (int64_t row = 0; row < kRows; ++row) {
    Answer& answer = answers[static_cast<size_t>(row)];
    const auto add = [&](const std::vector<float>& logits) {
      answer.logits.insert(answer.logits.end(), logits.begin(), logits.end());
      answer.tokens.push_back(engine.sample(logits)[0]);
    };
    std::vector<float> logits;
    for (int64_t start = 0; start < kPrompts[row]; start += 100) logits = engine.run({{row, start, std::min<int64_t>(100, kPrompts[row] - start)}});
    add(logits);
    for (int64_t step = 0; step < kSteps; ++step) add(engine.run({{row, kPrompts[row] + step, 1}}));
  }
  return answers;
}

// All rows in one batch, prompts whole.
std::vector<Answer> answer_together(Engine& engine) {
  std::vector<Answer> answers(kRows);
  for (int64_t step = 0; step <= kSteps; ++step) {
    std::vector<Engine::Row> rows;
    for (int64_t row = 0; row < kRows; ++row) rows.push_back(step == 0 ? Engine::Row{row, 0, kPrompts[row]} : Engine::Row{row, kPrompts[row] + step - 1, 1});
    const std::vector<float> logits = engine.run(rows);
    const std::vector<int32_t> tokens = engine.sample(logits);
    for (size_t row = 0; row < kRows; ++row) {
      answers[row].logits.insert(answers[row].logits.end(), logits.begin() + static_cast<int64_t>(row) * kVocab, logits.begin() + static_cast<int64_t>(row + 1) * kVocab);
      answers[row].tokens.push_back(tokens[row]);
    }
  }
  return answers;
}

void check(const std::vector<Answer>& answers, const std::vector<Answer>& alone, Isa isa, const char* how, int threads) {
  for (size_t row = 0; row < kRows; ++row) {
    const auto& got = answers[row].logits;
    const auto& expected = alone[row].logits;
    const bool is_same = got.size() == expected.size() && std::memcmp(got.data(), expected.data(), got.size() * 4) == 0;
    if (is_same && answers[row].tokens == alone[row].tokens) continue;
    std::printf("%s: row %zu has other bits %s on %d threads\n", kernel_table(isa).isa, row, how, threads);
    ++failures;
  }
}

// Logits that are numbers and are not all the same: bits that are compared must say something.
void check_they_tell(const std::vector<Answer>& answers, Isa isa) {
  for (const Answer& answer : answers) {
    const auto [low, high] = std::minmax_element(answer.logits.begin(), answer.logits.end());
    if (std::isfinite(std::accumulate(answer.logits.begin(), answer.logits.end(), 0.0f)) && *low < *high) continue;
    std::printf("%s: logits from %g to %g\n", kernel_table(isa).isa, static_cast<double>(*low), static_cast<double>(*high));
    ++failures;
  }
}

}  // namespace

int main() {
  for (const Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    const std::vector<Answer> alone = answer_alone(isa);
    check_they_tell(alone, isa);
    for (int threads : {1, 2, 4}) {
      const auto device = std::make_shared<Device>(threads, isa);
      Engine engine(device);
      check(answer_together(engine), alone, isa, "in a batch", threads);
      engine.set_tracing(true);
      check(answer_together(engine), alone, isa, "traced", threads);
      engine.set_tracing(false);
      Engine shared(device, true);
      check(answer_together(shared), alone, isa, "with gate and up in one", threads);
      if (!shared.is_gated_in_one() || engine.is_gated_in_one()) {
        std::printf("%s: gate and up are %sone operation\n", kernel_table(isa).isa, shared.is_gated_in_one() ? "" : "not ");
        ++failures;
      }
      // Two programs that share the threads, each called by a thread of its own.
      Engine other(device);
      std::vector<Answer> first, second;
      std::thread caller([&] { first = answer_together(engine); });
      second = answer_together(other);
      caller.join();
      check(first, alone, isa, "beside another program", threads);
      check(second, alone, isa, "beside another program", threads);
    }
    std::printf("%s: %s\n", kernel_table(isa).isa, failures ? "failed" : "ok");
  }
  return failures != 0;
}
