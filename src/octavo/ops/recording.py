"""`record` calls a model once, with symbols for tensors, and returns what it did as a Program. Every width is checked, so whoever
lowers the program need not."""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import Struct, structs

from octavo.ops.interface import Batch, KVCache, Model, Tensor, Weight
from octavo.ops.program import (
    FIRST_COMPUTED_ID,
    POSITIONS,
    SAMPLE_ROWS,
    TOKEN_IDS,
    TOKEN_TYPES,
    Activate,
    Add,
    Attention,
    Embed,
    Experts,
    Gated,
    HeadLinear,
    Instruction,
    LatentAttention,
    LayerNorm,
    Linear,
    Program,
    RmsNorm,
    Rope,
    Route,
    StoreKV,
    StoreLatent,
    TakeRows,
    TensorRef,
    WholeAttention,
)
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan, KVSpec
from octavo.specs.model import ExpertsSpec, RopeSpec


def record(model: Model, kv_spec: KVSpec) -> Program:
    """Return the forward pass of `model` over KV memory of this shape. Raises ValueError when widths do not fit."""
    recording = RecordingOps(kv_spec)
    output = model.forward(recording, recording.batch, recording.kv)
    if not isinstance(output, TensorRef) or output.rows != "S":
        raise ValueError("a model must return logits of the sampled rows")
    return Program(tuple(recording.instructions), output, FIRST_COMPUTED_ID + recording.num_computed)


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
