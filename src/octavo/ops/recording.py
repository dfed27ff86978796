"""A forward pass as data: `record` calls a model once with symbols for tensors and returns what it did, a flat list of
instructions. A backend lowers the list to its own program; `run` replays it on any Ops.

There is one instruction type per verb of `Ops`, with the verb's arguments as fields, `out` first. The list is closed,
straight-line and in order; each tensor is written once. Only row counts are open: "T" tokens of a step, "S" sampled rows.
Recording checks every width, so a lowering need not.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import Struct, structs

from octavo.ops.interface import Batch, KVCache, Model, Ops, Tensor, Weight
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan, KVSpec
from octavo.specs.model import ExpertsSpec, RopeSpec


class TensorRef(Struct, frozen=True):
    """A tensor of the program: float32 [rows, width], or one of the batch's index arrays below."""

    id: int
    rows: Literal["T", "S"]
    width: int


TOKEN_IDS = TensorRef(0, "T", 1)  # batch.token_ids
POSITIONS = TensorRef(1, "T", 1)  # batch.positions
SAMPLE_ROWS = TensorRef(2, "S", 1)  # batch.sample_rows
TOKEN_TYPES = TensorRef(3, "T", 1)  # batch.token_types
FIRST_COMPUTED_ID = 4  # ids from here on are outputs of instructions, without gaps


class Embed(Struct, frozen=True):
    out: TensorRef
    ids: TensorRef  # TOKEN_IDS, POSITIONS or TOKEN_TYPES
    weight: Weight


class RmsNorm(Struct, frozen=True):
    out: TensorRef
    x: TensorRef
    weight: Tensor  # a vector of the backend
    eps: float


class Linear(Struct, frozen=True):
    out: TensorRef
    x: TensorRef
    weight: Weight
    bias: Tensor | None  # a vector of the backend


class Rope(Struct, frozen=True):
    out: TensorRef
    x: TensorRef
    positions: TensorRef
    rope: RopeSpec
    head_dim: int


class StoreKV(Struct, frozen=True):
    k: TensorRef
    v: TensorRef
    layer: int


class Attention(Struct, frozen=True):
    """Reads what StoreKV of the same layer wrote in this step and earlier ones."""

    out: TensorRef
    q: TensorRef
    layer: int
    scale: float
    span: AttentionSpan


class HeadLinear(Struct, frozen=True):
    out: TensorRef
    x: TensorRef
    weight: Weight
    heads: int


class StoreLatent(Struct, frozen=True):
    latent: TensorRef
    rotary: TensorRef
    layer: int


class LatentAttention(Struct, frozen=True):
    """Reads what StoreLatent of the same layer wrote in this step and earlier ones."""

    out: TensorRef
    q: TensorRef
    q_rotary: TensorRef
    layer: int
    scale: float


class Gated(Struct, frozen=True):
    out: TensorRef
    gate: TensorRef
    up: TensorRef
    activation: str


class Route(Struct, frozen=True):
    out: TensorRef
    logits: TensorRef
    bias: Tensor | None  # a vector of the backend
    experts: ExpertsSpec


class Experts(Struct, frozen=True):
    out: TensorRef
    x: TensorRef
    weights: TensorRef
    gate: Weight
    up: Weight
    down: Weight
    experts: ExpertsSpec
    activation: str


class Add(Struct, frozen=True):
    out: TensorRef
    x: TensorRef
    y: TensorRef


class TakeRows(Struct, frozen=True):
    out: TensorRef
    x: TensorRef
    rows: TensorRef


class LayerNorm(Struct, frozen=True):
    out: TensorRef
    x: TensorRef
    weight: Tensor  # a vector of the backend, as is bias
    bias: Tensor
    eps: float


class Activate(Struct, frozen=True):
    out: TensorRef
    x: TensorRef
    activation: str


class WholeAttention(Struct, frozen=True):
    out: TensorRef
    q: TensorRef
    k: TensorRef
    v: TensorRef
    head_dim: int
    scale: float


Instruction = (
    Embed
    | RmsNorm
    | Linear
    | Rope
    | StoreKV
    | Attention
    | HeadLinear
    | StoreLatent
    | LatentAttention
    | Gated
    | Route
    | Experts
    | Add
    | TakeRows
    | LayerNorm
    | Activate
    | WholeAttention
)


class Program(Struct, frozen=True):
    """`output` is the logits [S, V]. Tensor ids are below `num_tensors`."""

    instructions: tuple[Instruction, ...]
    output: TensorRef
    num_tensors: int


def record(model: Model, kv_spec: KVSpec) -> Program:
    """Return the forward pass of `model` over KV memory of this shape. Raises ValueError when widths do not fit."""
    recording = RecordingOps(kv_spec)
    output = model.forward(recording, recording.batch, recording.kv)
    if not isinstance(output, TensorRef) or output.rows != "S":
        raise ValueError("a model must return logits of the sampled rows")
    return Program(tuple(recording.instructions), output, FIRST_COMPUTED_ID + recording.num_computed)


def run(program: Program, ops: Ops, batch: Batch, kv: KVCache) -> Tensor:
    """Return the logits [S, V] of the program, replayed verb by verb."""
    value: dict[int, Tensor] = {
        TOKEN_IDS.id: batch.token_ids,
        POSITIONS.id: batch.positions,
        SAMPLE_ROWS.id: batch.sample_rows,
        TOKEN_TYPES.id: batch.token_types,
    }
    for step in program.instructions:
        match step:
            case Embed():
                value[step.out.id] = ops.embed(value[step.ids.id], step.weight)
            case RmsNorm():
                value[step.out.id] = ops.rms_norm(value[step.x.id], step.weight, step.eps)
            case Linear():
                value[step.out.id] = ops.linear(value[step.x.id], step.weight, step.bias)
            case Rope():
                value[step.out.id] = ops.rope(value[step.x.id], value[step.positions.id], step.rope, step.head_dim)
            case StoreKV():
                ops.store_kv(value[step.k.id], value[step.v.id], kv, step.layer, batch)
            case Attention():
                value[step.out.id] = ops.attention(value[step.q.id], kv, step.layer, batch, step.scale, step.span)
            case HeadLinear():
                value[step.out.id] = ops.head_linear(value[step.x.id], step.weight, step.heads)
            case StoreLatent():
                ops.store_latent(value[step.latent.id], value[step.rotary.id], kv, step.layer, batch)
            case LatentAttention():
                q, q_rotary = value[step.q.id], value[step.q_rotary.id]
                value[step.out.id] = ops.latent_attention(q, q_rotary, kv, step.layer, batch, step.scale)
            case Gated():
                value[step.out.id] = ops.gated(value[step.gate.id], value[step.up.id], step.activation)
            case Route():
                value[step.out.id] = ops.route(value[step.logits.id], step.bias, step.experts)
            case Experts():
                x, weights = value[step.x.id], value[step.weights.id]
                value[step.out.id] = ops.experts(x, weights, step.gate, step.up, step.down, step.experts, step.activation)
            case Add():
                value[step.out.id] = ops.add(value[step.x.id], value[step.y.id])
            case TakeRows():
                value[step.out.id] = ops.take_rows(value[step.x.id], value[step.rows.id])
            case LayerNorm():
                value[step.out.id] = ops.layer_norm(value[step.x.id], step.weight, step.bias, step.eps)
            case Activate():
                value[step.out.id] = ops.activate(value[step.x.id], step.activation)
            case WholeAttention():
                q, k, v = (value[tensor.id] for tensor in (step.q, step.k, step.v))
                value[step.out.id] = ops.whole_attention(q, k, v, batch, step.head_dim, step.scale)
    return value[program.output.id]


def inputs_of(step: Instruction) -> tuple[TensorRef, ...]:
    """Return the tensors that an instruction reads."""
    read = (getattr(step, name) for name in step.__struct_fields__ if name != "out")
    return tuple(tensor for tensor in read if isinstance(tensor, TensorRef))


def last_uses(program: Program) -> dict[int, int]:
    """Return, per tensor id, the index of the last instruction that reads it; the output is read after the last one."""
    last = {tensor.id: index for index, step in enumerate(program.instructions) for tensor in inputs_of(step)}
    last[program.output.id] = len(program.instructions)
    return last


class _RecordedKV(Struct, frozen=True):
    """Stands for the KV memory while recording; its blocks are not there."""

    spec: KVSpec
    num_blocks: int = 0


class RecordingOps:
    """Ops that compute nothing and write down what they were asked. `batch` and `kv` stand for the step's own."""

    def __init__(self, kv_spec: KVSpec) -> None:
        self.instructions: list[Instruction] = []
        self.num_computed = 0
        self.kv = _RecordedKV(kv_spec)
        symbols: dict[str, Any] = dict.fromkeys(Batch.__struct_fields__)
        self.batch = structs.replace(
            Batch(**symbols),
            token_ids=cast(Any, TOKEN_IDS),
            positions=cast(Any, POSITIONS),
            sample_rows=cast(Any, SAMPLE_ROWS),
            token_types=cast(Any, TOKEN_TYPES),
        )

    def embed(self, ids: Tensor, weight: Weight) -> Tensor:
        _must(ids in (TOKEN_IDS, POSITIONS, TOKEN_TYPES), "embed reads batch.token_ids, positions or token_types")
        out = self._tensor("T", weight.shape[1])
        self.instructions.append(Embed(out, ids, weight))
        return out

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        _must(x.width % len(weight) == 0, f"rms_norm: {x.width} values are no multiple of {len(weight)} weights")
        out = self._tensor(x.rows, x.width)
        self.instructions.append(RmsNorm(out, x, weight, eps))
        return out

    def linear(self, x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
        _must(x.width == weight.shape[1], f"linear: {x.width} values meet a weight of shape {weight.shape}")
        _must(bias is None or len(bias) == weight.shape[0], f"linear: the bias does not fit a weight of shape {weight.shape}")
        out = self._tensor(x.rows, weight.shape[0])
        self.instructions.append(Linear(out, x, weight, bias))
        return out

    def rope(self, x: Tensor, positions: Tensor, rope: RopeSpec, head_dim: int) -> Tensor:
        _must(positions is POSITIONS, "rope reads batch.positions")
        _must(x.rows == "T" and x.width % head_dim == 0, f"rope: {x.width} values are no heads of {head_dim}")
        out = self._tensor(x.rows, x.width)
        self.instructions.append(Rope(out, x, positions, rope, head_dim))
        return out

    def store_kv(self, k: Tensor, v: Tensor, kv: KVCache, layer: int, batch: Batch) -> None:
        spec = self._own(kv, batch, layer)
        _must(not spec.is_latent, "store_kv: the KV memory is of latents")
        _must(k.rows == v.rows == "T", "store_kv: one row of k and v per token")
        _must(k.width == v.width == spec.num_kv_heads * spec.head_dim, f"store_kv: k and v have {k.width} and {v.width} values")
        self.instructions.append(StoreKV(k, v, layer))

    def attention(self, q: Tensor, kv: KVCache, layer: int, batch: Batch, scale: float, span: AttentionSpan = FULL_ATTENTION) -> Tensor:
        spec = self._own(kv, batch, layer)
        _must(not spec.is_latent, "attention: the KV memory is of latents")
        _must(
            q.rows == "T" and q.width % (spec.num_kv_heads * spec.head_dim) == 0,
            f"attention: {q.width} values of q do not fit the KV heads",
        )
        out = self._tensor("T", q.width)
        self.instructions.append(Attention(out, q, layer, scale, span))
        return out

    def head_linear(self, x: Tensor, weight: Weight, heads: int) -> Tensor:
        _must(x.width == heads * weight.shape[1], f"head_linear: {x.width} values of {heads} heads meet a weight of shape {weight.shape}")
        _must(
            weight.shape[0] % (heads * 16) == 0, f"head_linear: {weight.shape[0]} channels are no multiple of 16 for each of {heads} heads"
        )
        out = self._tensor(x.rows, weight.shape[0])
        self.instructions.append(HeadLinear(out, x, weight, heads))
        return out

    def store_latent(self, latent: Tensor, rotary: Tensor, kv: KVCache, layer: int, batch: Batch) -> None:
        spec = self._own(kv, batch, layer)
        _must(spec.is_latent, "store_latent: the KV memory is not of latents")
        _must(latent.rows == rotary.rows == "T", "store_latent: one latent and one rotary key per token")
        _must(
            (latent.width, rotary.width) == (spec.head_dim, spec.rotary_dim),
            f"store_latent: latent and rotary key have {latent.width} and {rotary.width} values",
        )
        self.instructions.append(StoreLatent(latent, rotary, layer))

    def latent_attention(self, q: Tensor, q_rotary: Tensor, kv: KVCache, layer: int, batch: Batch, scale: float) -> Tensor:
        spec = self._own(kv, batch, layer)
        _must(spec.is_latent, "latent_attention: the KV memory is not of latents")
        _must(
            q.rows == q_rotary.rows == "T" and q.width % spec.head_dim == 0 and q.width * spec.rotary_dim == q_rotary.width * spec.head_dim,
            f"latent_attention: {q.width} and {q_rotary.width} values of q do not fit the latents",
        )
        out = self._tensor("T", q.width)
        self.instructions.append(LatentAttention(out, q, q_rotary, layer, scale))
        return out

    def gated(self, gate: Tensor, up: Tensor, activation: str) -> Tensor:
        _must((gate.rows, gate.width) == (up.rows, up.width), f"gated: {gate.width} and {up.width} values")
        out = self._tensor(gate.rows, gate.width)
        self.instructions.append(Gated(out, gate, up, activation))
        return out

    def route(self, logits: Tensor, bias: Tensor | None, experts: ExpertsSpec) -> Tensor:
        _must(logits.width == experts.count, f"route: {logits.width} logits of {experts.count} experts")
        _must(bias is None or len(bias) == experts.count, f"route: the bias does not fit {experts.count} experts")
        out = self._tensor(logits.rows, logits.width)
        self.instructions.append(Route(out, logits, bias, experts))
        return out

    def experts(self, x: Tensor, weights: Tensor, gate: Weight, up: Weight, down: Weight, experts: ExpertsSpec, activation: str) -> Tensor:
        inner = experts.count * experts.intermediate_size
        _must((weights.rows, weights.width) == (x.rows, experts.count), f"experts: {weights.width} weights of {experts.count} experts")
        _must(gate.shape == up.shape == (inner, x.width), f"experts: {x.width} values meet weights of shape {gate.shape} and {up.shape}")
        _must(down.shape == (experts.count * x.width, experts.intermediate_size), f"experts: down has shape {down.shape}")
        out = self._tensor(x.rows, x.width)
        self.instructions.append(Experts(out, x, weights, gate, up, down, experts, activation))
        return out

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        _must((x.rows, x.width) == (y.rows, y.width), f"add: {x.width} and {y.width} values")
        out = self._tensor(x.rows, x.width)
        self.instructions.append(Add(out, x, y))
        return out

    def take_rows(self, x: Tensor, rows: Tensor) -> Tensor:
        _must(rows is SAMPLE_ROWS and x.rows == "T", "take_rows picks batch.sample_rows of a tensor of the step's tokens")
        out = self._tensor("S", x.width)
        self.instructions.append(TakeRows(out, x, rows))
        return out

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        _must(x.width == len(weight) == len(bias), f"layer_norm: {x.width} values, {len(weight)} weights and {len(bias)} biases")
        out = self._tensor(x.rows, x.width)
        self.instructions.append(LayerNorm(out, x, weight, bias, eps))
        return out

    def activate(self, x: Tensor, activation: str) -> Tensor:
        out = self._tensor(x.rows, x.width)
        self.instructions.append(Activate(out, x, activation))
        return out

    def whole_attention(self, q: Tensor, k: Tensor, v: Tensor, batch: Batch, head_dim: int, scale: float) -> Tensor:
        _must(batch is self.batch, "a model passes on the batch that it was given")
        _must(q.rows == k.rows == v.rows == "T", "whole_attention: one row of q, k and v per token")
        _must(q.width == k.width == v.width and q.width % head_dim == 0, f"whole_attention: {q.width} values are no heads of {head_dim}")
        out = self._tensor("T", q.width)
        self.instructions.append(WholeAttention(out, q, k, v, head_dim, scale))
        return out

    def _tensor(self, rows: Literal["T", "S"], width: int) -> TensorRef:
        self.num_computed += 1
        return TensorRef(FIRST_COMPUTED_ID + self.num_computed - 1, rows, width)

    def _own(self, kv: KVCache, batch: Batch, layer: int) -> KVSpec:
        _must(kv is self.kv and batch is self.batch, "a model passes on the KV memory and the batch that it was given")
        kv.spec.place(layer)
        return kv.spec


def _must(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
