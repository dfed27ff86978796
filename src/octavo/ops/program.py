"""A forward pass as data: a flat list of instructions that a backend lowers to its own program, and `run` replays on any Ops.

There is one instruction type per verb of `Ops`, with the verb's arguments as fields, `out` first. The list is closed,
straight-line and in order; each tensor is written once. Only row counts are open: "T" tokens of a step, "S" sampled rows.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from octavo.ops.interface import Batch, KVCache, Ops, Tensor, Weight
from octavo.specs.kv import AttentionSpan
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
