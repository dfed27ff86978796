// The Python module octavo.backends.native._native. All that comes from Python is checked here: dtypes and layout by the
// argument types (nothing is converted silently), sizes and ids by hand; after that the library trusts its arguments.
// std::invalid_argument becomes ValueError. Every call that computes releases the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "octavo/batch.h"
#include "octavo/device.h"
#include "octavo/eager.h"
#include "octavo/peaks.h"
#include "octavo/program.h"
#include "octavo/rotary.h"
#include "octavo/sampler.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

template <class T, size_t N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Floats = Array<const float, 1>;
using Matrix = Array<const float, 2>;
using MatrixOut = Array<float, 2>;
using Ints = Array<const int32_t, 1>;
using Longs = Array<const int64_t, 1>;
using Unsigned = Array<const uint64_t, 1>;

void must(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument(message);
}

template <class A>
int64_t rows_of(const A& array) {
  return static_cast<int64_t>(array.shape(0));
}
template <class A>
int64_t width_of(const A& array) {
  return static_cast<int64_t>(array.shape(1));
}

template <class A, class B>
bool is_same_shape(const A& a, const B& b) {
  return rows_of(a) == rows_of(b) && width_of(a) == width_of(b);
}

Format format_of(const std::string& label) {
  for (int i = 0; i <= static_cast<int>(Format::Q6_K); ++i) {
    if (label == format_info(static_cast<Format>(i)).label) return static_cast<Format>(i);
  }
  throw std::invalid_argument("unknown format " + label);
}

Isa isa_of(const std::string& name) {
  for (const Isa isa : kIsas) {
    if (isa_available(isa) && name == kernel_table(isa).isa) return isa;
  }
  throw std::invalid_argument("this CPU has no instruction set " + name);
}

Activation activation_of(const std::string& name) {
  if (name == "silu") return Activation::Silu;
  if (name == "gelu") return Activation::Gelu;
  if (name == "gelu_tanh") return Activation::GeluTanh;
  if (name == "relu") return Activation::Relu;
  if (name == "tanh") return Activation::Tanh;
  throw std::invalid_argument("unknown activation " + name + "; known: silu, gelu, gelu_tanh, relu, tanh");
}

Ids ids_of(const std::string& name) {
  must(name == "tokens" || name == "positions" || name == "types", "ids are tokens, positions or types");
  return name == "tokens" ? Ids::Tokens : name == "positions" ? Ids::Positions : Ids::Types;
}

RowSpace row_space_of(const std::string& name) {
  must(name == "T" || name == "S", "rows are T (tokens) or S (samples)");
  return name == "T" ? RowSpace::Tokens : RowSpace::Samples;
}

int64_t window_of(std::optional<int64_t> window) {
  must(!window || *window > 0, "a window or chunk must be at least 1");
  return window.value_or(std::numeric_limits<int64_t>::max());
}

Rotary rotary_of(const Array<const double, 1>& frequencies, double factor, bool interleaved) {
  return {std::vector<double>(frequencies.data(), frequencies.data() + frequencies.size()), factor, interleaved};
}

Vector vector_of(const Floats& array) { return std::make_shared<const std::vector<float>>(array.data(), array.data() + array.size()); }

Batch batch_of(const Ints& token_ids, const Ints& positions, const Ints& query_start, const Ints& context_len, const Array<const int32_t, 2>& block_table,
               const Longs& slot_mapping, const Ints& sample_rows) {
  Batch batch;
  batch.num_tokens = rows_of(token_ids);
  batch.num_rows = rows_of(context_len);
  batch.num_samples = rows_of(sample_rows);
  batch.table_width = width_of(block_table);
  must(rows_of(positions) == batch.num_tokens, "positions must have one entry a token");
  batch.num_groups = batch.num_tokens == 0 ? 1 : rows_of(slot_mapping) / batch.num_tokens;
  must(batch.num_groups > 0 && rows_of(slot_mapping) == batch.num_groups * batch.num_tokens, "slot_mapping must have one entry a token and layer group");
  must(batch.table_width % batch.num_groups == 0, "block_table must have as many columns for each layer group");
  must(rows_of(query_start) == batch.num_rows + 1 && rows_of(block_table) == batch.num_rows, "query_start and block_table must fit the number of rows");
  batch.token_ids = token_ids.data();
  batch.positions = positions.data();
  batch.query_start = query_start.data();
  batch.context_len = context_len.data();
  batch.block_table = block_table.data();
  batch.slot_mapping = slot_mapping.data();
  batch.sample_rows = sample_rows.data();
  return batch;
}

KvType kv_type_of(const std::string& dtype) {
  constexpr std::pair<const char*, KvType> types[] = {
      {"f16", KvType::F16}, {"bf16", KvType::BF16}, {"f32", KvType::F32}, {"fp8_e4m3", KvType::Fp8E4M3}, {"int8_per_token_head", KvType::Int8},
      {"fp8_ds_mla", KvType::Fp8DsMla}};
  for (const auto& [name, type] : types) {
    if (dtype == name) return type;
  }
  throw std::invalid_argument("KV memory is f16, bf16, f32, fp8_e4m3, int8_per_token_head or fp8_ds_mla");
}

KvCache shape_of(const std::string& dtype, int64_t num_layers, int64_t num_kv_heads, int64_t head_dim, int64_t rotary_dim, int64_t block_size, int64_t num_blocks) {
  KvCache shape;
  shape.type = kv_type_of(dtype);
  shape.num_layers = num_layers;
  shape.num_kv_heads = num_kv_heads;
  shape.head_dim = head_dim;
  shape.rotary_dim = rotary_dim;
  shape.block_size = block_size;
  shape.num_blocks = num_blocks;
  return shape;
}

void read_block(const KvMemory& memory, int64_t block, const Array<uint8_t, 1>& out) {
  must(rows_of(out) == memory.cache().block_bytes(), "read_block: out must have the bytes of a block");
  nb::gil_scoped_release release;
  memory.read_block(block, out.data());
}

void write_block(KvMemory& memory, int64_t block, const Array<const uint8_t, 1>& data) {
  must(rows_of(data) == memory.cache().block_bytes(), "write_block: data must have the bytes of a block");
  nb::gil_scoped_release release;
  memory.write_block(block, data.data());
}

void check_layer(const KvCache& kv, int64_t layer) { must(layer >= 0 && layer < kv.num_layers, "the layer is not in the KV memory"); }

// --- one verb at a time --------------------------------------------------------------------------------------------

std::shared_ptr<PackedMatrix> pack(Device& device, const std::string& label, int64_t n, int64_t k, const Array<const uint8_t, 1>& data) {
  const Format format = format_of(label);
  must(n > 0 && k > 0 && n <= int64_t{1} << 31 && k <= int64_t{1} << 31, "a matrix has at least one row and one column");
  nb::gil_scoped_release release;
  return std::make_shared<PackedMatrix>(pack_matrix(format, n, k, data.data(), data.size(), device.kernels.quantised_act, device.pool));
}

void embed(Device& device, const PackedMatrix& weight, const Ints& ids, const MatrixOut& out) {
  must(rows_of(out) == rows_of(ids) && width_of(out) == weight.k, "embed: out must be [ids, k]");
  check_ids("token id", ids.data(), rows_of(ids), weight.n);
  nb::gil_scoped_release release;
  eager::embed(device, weight, ids.data(), rows_of(ids), out.data());
}

void rms_norm(Device& device, const Matrix& x, const Floats& weight, float eps, const MatrixOut& out) {
  const auto size = static_cast<int64_t>(weight.size());
  must(is_same_shape(x, out) && size > 0 && width_of(x) % size == 0, "rms_norm: x and out must be [T, G * len(weight)]");
  nb::gil_scoped_release release;
  eager::rms_norm(device, x.data(), rows_of(x), width_of(x) / size, size, weight.data(), eps, out.data());
}

void layer_norm(Device& device, const Matrix& x, const Floats& weight, const Floats& bias, float eps, const MatrixOut& out) {
  must(is_same_shape(x, out) && rows_of(weight) == width_of(x) && rows_of(bias) == width_of(x), "layer_norm: x and out must be [T, len(weight)]");
  nb::gil_scoped_release release;
  eager::layer_norm(device, x.data(), rows_of(x), width_of(x), weight.data(), bias.data(), eps, out.data());
}

void activate(Device& device, const Matrix& x, const std::string& activation, const MatrixOut& out) {
  must(is_same_shape(x, out), "activate: shapes must agree");
  const Activation which = activation_of(activation);
  nb::gil_scoped_release release;
  eager::activate(device, which, x.data(), rows_of(x) * width_of(x), out.data());
}

void linear(Device& device, const PackedMatrix& weight, const Matrix& x, const std::optional<Floats>& bias, const MatrixOut& out) {
  must(width_of(x) == weight.k && rows_of(out) == rows_of(x) && width_of(out) == weight.n, "linear: x must be [T, k] and out [T, n]");
  must(!bias || static_cast<int64_t>(bias->size()) == weight.n, "linear: the bias must be [n]");
  nb::gil_scoped_release release;
  eager::linear(device, weight, x.data(), rows_of(x), 1, bias ? bias->data() : nullptr, out.data());
}

void head_linear(Device& device, const PackedMatrix& weight, const Matrix& x, int64_t heads, const MatrixOut& out) {
  must(heads > 0 && weight.n % (heads * kPanel) == 0, "head_linear: a head's channels must be a multiple of 16");
  must(width_of(x) == heads * weight.k && rows_of(out) == rows_of(x) && width_of(out) == weight.n, "head_linear: x must be [T, heads * k] and out [T, n]");
  nb::gil_scoped_release release;
  eager::linear(device, weight, x.data(), rows_of(x), heads, nullptr, out.data());
}

void rope(Device& device, const Matrix& x, const Ints& positions, const Array<const double, 1>& frequencies, double factor, bool interleaved,
          int64_t head_dim, const MatrixOut& out) {
  const Rotary rotary = rotary_of(frequencies, factor, interleaved);
  must(is_same_shape(x, out) && rows_of(positions) == rows_of(x), "rope: x and out must be [T, H * head_dim], positions [T]");
  must(head_dim > 0 && width_of(x) % head_dim == 0 && 2 * rotary.pairs() <= head_dim, "rope: x must be heads of head_dim, and the rotary part within a head");
  nb::gil_scoped_release release;
  eager::rope(device, rotary, x.data(), positions.data(), rows_of(x), width_of(x) / head_dim, head_dim, out.data());
}

void store_kv(Device& device, const KvMemory& memory, int64_t layer, const Matrix& k, const Matrix& v, const Longs& slots) {
  const KvCache& kv = memory.cache();
  check_layer(kv, layer);
  must(rows_of(k) == rows_of(v) && rows_of(k) == rows_of(slots) && width_of(k) == kv.num_kv_heads * kv.head_dim, "store_kv: k and v must be [T, kv_heads * head_dim]");
  must(width_of(v) == (kv.is_latent() ? kv.rotary_dim : width_of(k)), "store_kv: v must be [T, kv_heads * head_dim], or of latent attention [T, rotary_dim]");
  for (size_t i = 0; i < slots.size(); ++i) must(slots.data()[i] >= 0 && slots.data()[i] < kv.num_blocks * kv.block_size, "store_kv: a slot is out of range");
  nb::gil_scoped_release release;
  eager::store_kv(device, kv, layer, k.data(), v.data(), rows_of(k), slots.data());
}

void attention(Device& device, const KvMemory& memory, int64_t layer, const Matrix& q, const std::optional<Matrix>& q_rotary, float scale, std::optional<int64_t> window, std::optional<int64_t> chunk,
               const Ints& token_ids, const Ints& positions, const Ints& query_start, const Ints& context_len, const Array<const int32_t, 2>& block_table,
               const Longs& slot_mapping, const Ints& sample_rows, const MatrixOut& out) {
  const KvCache& kv = memory.cache();
  check_layer(kv, layer);
  const Batch batch = batch_of(token_ids, positions, query_start, context_len, block_table, slot_mapping, sample_rows);
  check_batch(batch, kv);
  const int64_t vectors = kv.num_kv_heads * kv.head_dim;
  must(is_same_shape(q, out) && rows_of(q) == batch.num_tokens && width_of(q) > 0 && width_of(q) % vectors == 0, "attention: q must be [T, H * head_dim]");
  const int64_t heads = width_of(q) / vectors, positions_seen = window_of(window), chunk_size = window_of(chunk);
  must(q_rotary.has_value() == kv.is_latent(), "attention is latent where the KV memory is");
  must(!q_rotary || (rows_of(*q_rotary) == rows_of(q) && width_of(*q_rotary) == heads * kv.rotary_dim), "attention: q_rotary must be [T, H * rotary_dim]");
  nb::gil_scoped_release release;
  eager::attention(device, kv, layer, batch, heads, q.data(), q_rotary ? q_rotary->data() : nullptr, scale, positions_seen, chunk_size, out.data());
}

void whole_attention(Device& device, const Matrix& q, const Matrix& k, const Matrix& v, float scale, int64_t head_dim, const Ints& token_ids,
                     const Ints& positions, const Ints& query_start, const Ints& context_len, const Array<const int32_t, 2>& block_table,
                     const Longs& slot_mapping, const Ints& sample_rows, const MatrixOut& out) {
  const Batch batch = batch_of(token_ids, positions, query_start, context_len, block_table, slot_mapping, sample_rows);
  check_batch(batch, KvCache{});
  check_whole_rows(batch);
  must(is_same_shape(q, k) && is_same_shape(q, v) && is_same_shape(q, out) && rows_of(q) == batch.num_tokens, "whole_attention: q, k, v and out must be [T, H * head_dim]");
  must(head_dim > 0 && width_of(q) % head_dim == 0, "whole_attention: q must be heads of head_dim");
  nb::gil_scoped_release release;
  eager::whole_attention(device, batch, width_of(q) / head_dim, head_dim, q.data(), k.data(), v.data(), scale, out.data());
}

void route(Device& device, const Routing& routing, const Matrix& logits, const std::optional<Floats>& bias, const MatrixOut& out) {
  must(is_same_shape(logits, out) && width_of(out) == routing.experts, "route: logits and out must be [T, experts]");
  must(!bias || rows_of(*bias) == routing.experts, "route: the bias must be [experts]");
  nb::gil_scoped_release release;
  eager::route(device, routing, logits.data(), rows_of(logits), bias ? bias->data() : nullptr, out.data());
}

void experts(Device& device, const Experts& experts, const Matrix& x, const Matrix& weights, const MatrixOut& out) {
  must(is_same_shape(x, out) && width_of(x) == experts.hidden(), "experts: x and out must be [T, hidden]");
  must(rows_of(weights) == rows_of(x) && width_of(weights) == experts.count(), "experts: weights must be [T, experts]");
  for (int64_t r = 0; r < rows_of(weights); ++r) {
    const float* row = weights.data() + r * experts.count();
    must(experts.count() - std::count(row, row + experts.count(), 0.0f) <= experts.picks, "experts: a row has more weights than it picks experts");
  }
  nb::gil_scoped_release release;
  eager::experts(device, experts, x.data(), weights.data(), rows_of(x), out.data());
}

void gated(Device& device, const Matrix& gate, const Matrix& up, const std::string& activation, const MatrixOut& out) {
  must(is_same_shape(gate, up) && is_same_shape(gate, out), "gated: shapes must agree");
  const Activation which = activation_of(activation);
  nb::gil_scoped_release release;
  eager::gated(device, which, gate.data(), up.data(), rows_of(gate), width_of(gate), out.data());
}

void add(Device& device, const Matrix& x, const Matrix& y, const MatrixOut& out) {
  must(is_same_shape(x, y) && is_same_shape(x, out), "add: shapes must agree");
  nb::gil_scoped_release release;
  eager::add(device, x.data(), y.data(), static_cast<int64_t>(x.size()), out.data());
}

// --- peaks ---------------------------------------------------------------------------------------------------------

double peak_of(Device& device, const std::string& kind) {
  must(kind == "f32" || kind == "bf16" || kind == "int8", "a peak is of f32, bf16 or int8");
  const Isa isa = isa_of(device.kernels.isa);
  nb::gil_scoped_release release;
  return peak_operations(device, isa, kind == "f32" ? Peak::F32 : kind == "bf16" ? Peak::Bf16 : Peak::Int8);
}

double peak_read_of(Device& device, int64_t bytes) {
  must(bytes >= 1 << 20 && bytes <= int64_t{1} << 40, "peak_read: between 1 MiB and 1 TiB");
  nb::gil_scoped_release release;
  return peak_read(device, bytes);
}

// --- programs ------------------------------------------------------------------------------------------------------

// Collects tensors and operations; Program checks them.
struct ProgramBuilder {
  std::vector<Tensor> tensors;
  std::vector<Operation> operations;

  TensorId tensor(const std::string& rows, int64_t row_bytes) {
    tensors.push_back({row_space_of(rows), row_bytes});
    return static_cast<TensorId>(tensors.size()) - 1;
  }
  TensorId operand(const std::string& rows, const PackedMatrix& weight, int64_t heads) {
    must(heads > 0 && heads <= 4096, "heads must lie in 1..4096");
    return tensor(rows, heads * static_cast<int64_t>(act_row_bytes(weight.act, weight.k)));
  }

  // Every id must be of a tensor; kNone where `may_lack` says so.
  TensorId known(TensorId id, bool may_lack = false) const {
    must((may_lack && id == kNone) || (id >= 0 && id < static_cast<TensorId>(tensors.size())), "there is no such tensor");
    return id;
  }
  std::shared_ptr<Program> build(std::shared_ptr<Device> device, const KvCache& kv, TensorId output, int64_t max_tokens, int64_t max_samples) const {
    return std::make_shared<Program>(std::move(device), kv, tensors, operations, known(output), max_tokens, max_samples);
  }
};

nb::object run_program(nb::object self, const Ints& token_ids, const Ints& positions, const Ints& query_start, const Ints& context_len,
                       const Array<const int32_t, 2>& block_table, const Longs& slot_mapping, const Ints& sample_rows,
                       const std::optional<Ints>& token_types) {
  auto& program = nb::cast<Program&>(self);
  Batch batch = batch_of(token_ids, positions, query_start, context_len, block_table, slot_mapping, sample_rows);
  must(!token_types || rows_of(*token_types) == batch.num_tokens, "token_types must have one entry a token");
  if (token_types) batch.token_types = token_types->data();
  const float* logits;
  {
    nb::gil_scoped_release release;
    logits = program.run(batch);
  }
  const size_t shape[2] = {static_cast<size_t>(batch.num_samples), static_cast<size_t>(program.output_width())};
  return nb::cast(nb::ndarray<nb::numpy, const float, nb::ndim<2>>(logits, 2, shape, self));
}

// --- sampling ------------------------------------------------------------------------------------------------------

void check_lists(const char* what, const Ints& start, size_t values, int64_t rows) {
  must(rows_of(start) == rows + 1 && start.data()[0] == 0 && start.data()[rows] == static_cast<int64_t>(values), std::string(what) + "_start must be [S + 1], from 0 to the number of entries");
  for (int64_t r = 0; r < rows; ++r) must(start.data()[r] <= start.data()[r + 1], std::string(what) + "_start must not fall");
}

void sample(Sampler& sampler, const Matrix& logits, const Floats& temperature, const Ints& top_k, const Floats& top_p, const Floats& min_p,
            const Floats& repetition_penalty, const Floats& presence_penalty, const Floats& frequency_penalty, const Unsigned& seed,
            const Unsigned& position, const Ints& num_logprobs, const Floats& typical_p, const Floats& top_n_sigma, const Floats& xtc_probability,
            const Floats& xtc_threshold, const Array<const bool, 1>& wants_processed, const Ints& given, const Ints& banned_start, const Ints& banned_ids, const Ints& bias_start,
            const Ints& bias_ids, const Floats& bias_values, const Ints& seen_start, const Ints& seen_ids, const Ints& seen_counts,
            const std::optional<Ints>& allowed_row, const std::optional<Array<const int32_t, 2>>& allowed, const Array<int32_t, 1>& token_ids,
            const Array<bool, 1>& is_nan, const Array<float, 1>& logprob, const Array<int32_t, 1>& rank,
            const Array<int32_t, 2>& top_ids, const MatrixOut& top_logprobs) {
  const int64_t rows = rows_of(logits), vocab = width_of(logits);
  must(vocab > 0 && vocab < int64_t{1} << 31, "sample: the vocabulary is empty or too large");
  for (const auto* a : {&temperature, &top_p, &min_p, &repetition_penalty, &presence_penalty, &frequency_penalty, &typical_p, &top_n_sigma, &xtc_probability, &xtc_threshold}) must(rows_of(*a) == rows, "sample: parameters must be [S]");
  must(rows_of(given) == rows && rows_of(wants_processed) == rows, "sample: parameters must be [S]");
  for (int64_t r = 0; r < rows; ++r) must(given.data()[r] < vocab, "sample: a given id is beyond the vocabulary");
  must(rows_of(top_k) == rows && rows_of(num_logprobs) == rows && rows_of(seed) == rows && rows_of(position) == rows, "sample: parameters must be [S]");
  check_lists("banned", banned_start, banned_ids.size(), rows);
  check_lists("bias", bias_start, bias_ids.size(), rows);
  check_lists("seen", seen_start, seen_ids.size(), rows);
  must(bias_values.size() == bias_ids.size() && seen_counts.size() == seen_ids.size(), "sample: bias_values and seen_counts must fit their ids");
  for (const auto* ids : {&banned_ids, &bias_ids, &seen_ids}) check_ids("token id", ids->data(), rows_of(*ids), vocab);
  must(allowed_row.has_value() == allowed.has_value(), "sample: allowed_row and allowed go together");
  if (allowed) {
    must(rows_of(*allowed_row) == rows && width_of(*allowed) >= (vocab + 31) / 32, "sample: allowed_row must be [S], allowed [M, V / 32]");
    for (int64_t r = 0; r < rows; ++r) must(allowed_row->data()[r] < rows_of(*allowed), "sample: allowed_row is beyond allowed");
  }
  must(rows_of(token_ids) == rows && rows_of(is_nan) == rows && rows_of(logprob) == rows && rows_of(rank) == rows, "sample: results must be [S]");
  must(rows_of(top_ids) == rows && is_same_shape(top_ids, top_logprobs), "sample: top_ids and top_logprobs must be [S, K]");
  for (int64_t r = 0; r < rows; ++r) must(num_logprobs.data()[r] <= width_of(top_ids), "sample: num_logprobs is more than K");
  const SamplingBatch how{.temperature = temperature.data(),
                          .top_p = top_p.data(),
                          .min_p = min_p.data(),
                          .repetition_penalty = repetition_penalty.data(),
                          .presence_penalty = presence_penalty.data(),
                          .frequency_penalty = frequency_penalty.data(),
                          .typical_p = typical_p.data(),
                          .top_n_sigma = top_n_sigma.data(),
                          .xtc_probability = xtc_probability.data(),
                          .xtc_threshold = xtc_threshold.data(),
                          .top_k = top_k.data(),
                          .num_logprobs = num_logprobs.data(),
                          .given = given.data(),
                          .wants_processed = wants_processed.data(),
                          .seed = seed.data(),
                          .position = position.data(),
                          .banned_start = banned_start.data(),
                          .banned_ids = banned_ids.data(),
                          .bias_start = bias_start.data(),
                          .bias_ids = bias_ids.data(),
                          .bias_values = bias_values.data(),
                          .seen_start = seen_start.data(),
                          .seen_ids = seen_ids.data(),
                          .seen_counts = seen_counts.data(),
                          .allowed_row = allowed ? allowed_row->data() : nullptr,
                          .allowed = allowed ? allowed->data() : nullptr,
                          .allowed_words = allowed ? width_of(*allowed) : 0};
  const Sampled result{token_ids.data(), is_nan.data(), logprob.data(), rank.data(), width_of(top_ids), top_ids.data(), top_logprobs.data()};
  nb::gil_scoped_release release;
  sampler.sample(logits.data(), rows, vocab, how, result);
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const Isa isa : kIsas) {
    if (isa_available(isa)) names.emplace_back(kernel_table(isa).isa);
  }
  return names;
}

}  // namespace

NB_MODULE(_native, m) {
  using P = std::shared_ptr<const PackedMatrix>;
  m.attr("interface") = OCTAVO_INTERFACE;
  m.def("available_isas", available_isas);
  m.def("usable_cpus", usable_cpus);

  nb::class_<PackedMatrix>(m, "Matrix")
      .def_prop_ro("shape", [](const PackedMatrix& w) { return nb::make_tuple(w.n, w.k); })
      .def_prop_ro("num_bytes", [](const PackedMatrix& w) { return w.num_bytes; })
      .def_prop_ro("operand", [](const PackedMatrix& w) { return w.act == ActKind::F32 ? "f32" : w.act == ActKind::BF16 ? "bf16" : "q8"; });

  nb::class_<KvCache>(m, "KVShape").def("__init__",
                                        [](KvCache* self, const std::string& dtype, int64_t num_layers, int64_t num_kv_heads, int64_t head_dim, int64_t rotary_dim,
                                           int64_t block_size, int64_t num_blocks) {
                                          new (self) KvCache(shape_of(dtype, num_layers, num_kv_heads, head_dim, rotary_dim, block_size, num_blocks));
                                        });
  nb::class_<KvMemory>(m, "KVMemory")
      .def(nb::init<KvCache>())
      .def("read_block", read_block, "block"_a, "out"_a.noconvert())
      .def("write_block", write_block, "block"_a, "data"_a.noconvert());

  nb::class_<Routing>(m, "Routing")
      .def("__init__",
           [](Routing* self, int64_t experts, int64_t picks, bool is_sigmoid, int64_t groups, int64_t groups_kept, bool by_two_best, bool normalize,
              float scaling) {
             const Routing routing{experts, picks, is_sigmoid, groups, groups_kept, by_two_best, normalize, scaling};
             check_routing(routing);
             new (self) Routing(routing);
           });
  nb::class_<Experts>(m, "Experts")
      .def("__init__", [](Experts* self, const PackedMatrix& gate, const PackedMatrix& up, const PackedMatrix& down, int64_t count, int64_t picks,
                          const std::string& activation) { new (self) Experts(make_experts(gate, up, down, count, picks, activation_of(activation))); });

  nb::class_<Device>(m, "Device")
      .def("__init__",
           [](Device* self, int threads, const std::string& isa) {
             must(threads >= 1 && threads <= 1024, "threads must lie in 1..1024");
             new (self) Device(threads, isa_of(isa));
           })
      .def_prop_ro("threads", [](const Device& device) { return device.pool.size(); })
      .def_prop_ro("isa", [](const Device& device) { return device.kernels.isa; })
      .def("peak_operations", peak_of, "kind"_a)
      .def("peak_read", peak_read_of, "bytes"_a)
      .def("pack", pack, "format"_a, "n"_a, "k"_a, "data"_a.noconvert())
      .def("embed", embed, "weight"_a, "ids"_a.noconvert(), "out"_a.noconvert())
      .def("rms_norm", rms_norm, "x"_a.noconvert(), "weight"_a.noconvert(), "eps"_a, "out"_a.noconvert())
      .def("linear", linear, "weight"_a, "x"_a.noconvert(), "bias"_a.noconvert().none(), "out"_a.noconvert())
      .def("head_linear", head_linear, "weight"_a, "x"_a.noconvert(), "heads"_a, "out"_a.noconvert())
      .def("rope", rope, "x"_a.noconvert(), "positions"_a.noconvert(), "frequencies"_a.noconvert(), "factor"_a, "interleaved"_a, "head_dim"_a,
           "out"_a.noconvert())
      .def("store_kv", store_kv, "kv"_a, "layer"_a, "k"_a.noconvert(), "v"_a.noconvert(), "slots"_a.noconvert())
      .def("attention", attention, "kv"_a, "layer"_a, "q"_a.noconvert(), "q_rotary"_a.noconvert().none(), "scale"_a, "window"_a.none(), "chunk"_a.none(), "token_ids"_a.noconvert(),
           "positions"_a.noconvert(), "query_start"_a.noconvert(), "context_len"_a.noconvert(), "block_table"_a.noconvert(), "slot_mapping"_a.noconvert(),
           "sample_rows"_a.noconvert(), "out"_a.noconvert())
      .def("layer_norm", layer_norm, "x"_a.noconvert(), "weight"_a.noconvert(), "bias"_a.noconvert(), "eps"_a, "out"_a.noconvert())
      .def("activate", activate, "x"_a.noconvert(), "activation"_a, "out"_a.noconvert())
      .def("whole_attention", whole_attention, "q"_a.noconvert(), "k"_a.noconvert(), "v"_a.noconvert(), "scale"_a, "head_dim"_a,
           "token_ids"_a.noconvert(), "positions"_a.noconvert(), "query_start"_a.noconvert(), "context_len"_a.noconvert(), "block_table"_a.noconvert(),
           "slot_mapping"_a.noconvert(), "sample_rows"_a.noconvert(), "out"_a.noconvert())
      .def("route", route, "routing"_a, "logits"_a.noconvert(), "bias"_a.noconvert().none(), "out"_a.noconvert())
      .def("experts", experts, "experts"_a, "x"_a.noconvert(), "weights"_a.noconvert(), "out"_a.noconvert())
      .def("gated", gated, "gate"_a.noconvert(), "up"_a.noconvert(), "activation"_a, "out"_a.noconvert())
      .def("add", add, "x"_a.noconvert(), "y"_a.noconvert(), "out"_a.noconvert());

  nb::class_<ProgramBuilder>(m, "ProgramBuilder")
      .def(nb::init<>())
      .def("tensor", &ProgramBuilder::tensor, "rows"_a, "row_bytes"_a)
      .def("operand", &ProgramBuilder::operand, "rows"_a, "weight"_a, "heads"_a)
      .def("embed",
           [](ProgramBuilder& b, TensorId out, const std::string& ids, P weight) { b.operations.push_back(EmbedOp{b.known(out), ids_of(ids), std::move(weight)}); })
      .def("layer_norm",
           [](ProgramBuilder& b, TensorId out, TensorId x, const Floats& weight, const Floats& bias, float eps) {
             b.operations.push_back(LayerNormOp{b.known(out), b.known(x), vector_of(weight), vector_of(bias), eps});
           })
      .def("activate",
           [](ProgramBuilder& b, TensorId out, TensorId x, const std::string& activation) {
             b.operations.push_back(ActivateOp{b.known(out), b.known(x), activation_of(activation)});
           })
      .def("whole_attention",
           [](ProgramBuilder& b, TensorId out, TensorId q, TensorId k, TensorId v, int64_t head_dim, float scale) {
             b.operations.push_back(WholeAttentionOp{b.known(out), b.known(q), b.known(k), b.known(v), head_dim, scale});
           })
      .def("angles",
           [](ProgramBuilder& b, TensorId out, const Array<const double, 1>& frequencies, double factor) {
             b.operations.push_back(AnglesOp{b.known(out), rotary_of(frequencies, factor, false)});
           })
      .def("take_rows", [](ProgramBuilder& b, TensorId out, TensorId x) { b.operations.push_back(TakeRowsOp{b.known(out), b.known(x)}); })
      .def("rms_norm",
           [](ProgramBuilder& b, TensorId out, TensorId x, const Floats& weight, float eps) {
             b.operations.push_back(RmsNormOp{b.known(out), b.known(x), vector_of(weight), eps});
           })
      .def("prepare",
           [](ProgramBuilder& b, TensorId out, TensorId x, const PackedMatrix& weight, int64_t heads) {
             b.operations.push_back(PrepareOp{b.known(out), b.known(x), weight.act, heads});
           })
      .def(
          "linear",
          [](ProgramBuilder& b, TensorId out, TensorId operand, P weight, const std::optional<Floats>& bias, std::optional<TensorId> residual, int64_t heads) {
            b.operations.push_back(
                LinearOp{b.known(out), b.known(operand), std::move(weight), bias ? vector_of(*bias) : nullptr, b.known(residual.value_or(kNone), true), heads});
          },
          "out"_a, "operand"_a, "weight"_a, "bias"_a.none(), "residual"_a.none(), "heads"_a)
      .def("rope",
           [](ProgramBuilder& b, TensorId out, TensorId x, TensorId angles, int64_t head_dim, bool interleaved) {
             b.operations.push_back(RopeOp{b.known(out), b.known(x), b.known(angles), head_dim, interleaved});
           })
      .def("store_kv", [](ProgramBuilder& b, TensorId k, TensorId v, int64_t layer_group, int64_t layer) {
             b.operations.push_back(StoreKvOp{b.known(k), b.known(v), layer_group, layer});
           })
      .def(
          "attention",
          [](ProgramBuilder& b, TensorId out, TensorId q, std::optional<TensorId> q_rotary, int64_t layer_group, int64_t layer, float scale,
             std::optional<int64_t> window, std::optional<int64_t> chunk) {
            b.operations.push_back(AttentionOp{b.known(out), b.known(q), b.known(q_rotary.value_or(kNone), true), layer_group, layer, scale, window_of(window), window_of(chunk)});
          },
          "out"_a, "q"_a, "q_rotary"_a.none(), "layer_group"_a, "layer"_a, "scale"_a, "window"_a.none(), "chunk"_a.none())
      .def("gated",
           [](ProgramBuilder& b, TensorId out, TensorId gate, TensorId up, const std::string& activation) {
             b.operations.push_back(GatedOp{b.known(out), b.known(gate), b.known(up), activation_of(activation)});
           })
      .def(
          "route",
          [](ProgramBuilder& b, TensorId out, TensorId logits, const std::optional<Floats>& bias, const Routing& routing) {
            b.operations.push_back(RouteOp{b.known(out), b.known(logits), bias ? vector_of(*bias) : nullptr, routing});
          },
          "out"_a, "logits"_a, "bias"_a.none(), "routing"_a)
      .def("experts",
           [](ProgramBuilder& b, TensorId out, TensorId x, TensorId weights, std::shared_ptr<const Experts> experts) {
             b.operations.push_back(ExpertsOp{b.known(out), b.known(x), b.known(weights), std::move(experts)});
           })
      .def("add", [](ProgramBuilder& b, TensorId out, TensorId x, TensorId y) { b.operations.push_back(AddOp{b.known(out), b.known(x), b.known(y)}); })
      .def(
          "build",
          [](const ProgramBuilder& b, std::shared_ptr<Device> device, const KvMemory& kv, TensorId output, int64_t max_tokens, int64_t max_samples) {
            return b.build(std::move(device), kv.cache(), output, max_tokens, max_samples);
          },
          "device"_a, "kv"_a, "output"_a, "max_tokens"_a, "max_samples"_a, nb::keep_alive<0, 3>())
      .def(
          "measure",
          [](const ProgramBuilder& b, std::shared_ptr<Device> device, const KvCache& kv, TensorId output, int64_t max_tokens, int64_t max_samples) {
            return b.build(std::move(device), kv, output, max_tokens, max_samples)->num_bytes();
          },
          "device"_a, "kv"_a, "output"_a, "max_tokens"_a, "max_samples"_a);

  nb::class_<Program>(m, "Program")
      .def_prop_ro("num_bytes", &Program::num_bytes)
      .def_prop_ro("num_regions", &Program::num_regions)
      .def("set_tracing", &Program::set_tracing, "on"_a)
      .def("take_trace",
           [](Program& program) {
             std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>> spans;
             for (const auto& span : program.take_trace()) spans.emplace_back(span.thread, span.region, span.begin_ns, span.end_ns, span.waited_ns);
             return spans;
           })
      .def_prop_ro("region_names", &Program::region_names)
      .def("run", run_program, "token_ids"_a.noconvert(), "positions"_a.noconvert(), "query_start"_a.noconvert(), "context_len"_a.noconvert(),
           "block_table"_a.noconvert(), "slot_mapping"_a.noconvert(), "sample_rows"_a.noconvert(), "token_types"_a.noconvert() = nb::none());

  nb::class_<Sampler>(m, "Sampler")
      .def(nb::init<std::shared_ptr<Device>>())
      .def("sample", sample, "logits"_a.noconvert(), "temperature"_a.noconvert(), "top_k"_a.noconvert(), "top_p"_a.noconvert(), "min_p"_a.noconvert(),
           "repetition_penalty"_a.noconvert(), "presence_penalty"_a.noconvert(), "frequency_penalty"_a.noconvert(), "seed"_a.noconvert(),
           "position"_a.noconvert(), "num_logprobs"_a.noconvert(), "typical_p"_a.noconvert(), "top_n_sigma"_a.noconvert(), "xtc_probability"_a.noconvert(),
           "xtc_threshold"_a.noconvert(), "wants_processed"_a.noconvert(), "given"_a.noconvert(), "banned_start"_a.noconvert(), "banned_ids"_a.noconvert(), "bias_start"_a.noconvert(),
           "bias_ids"_a.noconvert(), "bias_values"_a.noconvert(), "seen_start"_a.noconvert(), "seen_ids"_a.noconvert(), "seen_counts"_a.noconvert(),
           "allowed_row"_a.noconvert().none(), "allowed"_a.noconvert().none(), "token_ids"_a.noconvert(), "is_nan"_a.noconvert(), "logprob"_a.noconvert(), "rank"_a.noconvert(), "top_ids"_a.noconvert(),
           "top_logprobs"_a.noconvert());
}

}  // namespace octavo
