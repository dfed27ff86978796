"""The DeepSeek family: V2 and V3.

The MLP is gated; in the layers from first_k_dense_replace on it is a mixture of experts, of which a router picks a few for each
token, beside a shared one. Attention is latent (MLA): of a token only a latent c and one rotary key are kept, and K and V of every
head are products of c that are never made:

    score      q . (W_k c) + q_rotary . k_rotary  =  (W_k' q) . c + q_rotary . k_rotary        W_k' q is made once a query
    result     sum of weights times (W_v c)       =  W_v (sum of weights times c)

so attention reads the latents as one KV head that all query heads share ("absorbed" form). It is used for prompts too: a
row's bits must not depend on whether it is decoded or prefilled.

Sources: DeepSeek-V2 (2024), sections 2.1 and 2.2; DeepSeek-V3 (2024), section 2.1; DeepSeekMoE (2024), section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from octavo.errors import ModelError
from octavo.models.decoder import Decoder, assemble
from octavo.models.llama import GatedMLP
from octavo.models.weights import bind_tensors
from octavo.ops.interface import Backend, Batch, KVCache, Ops, Tensor, Weight
from octavo.specs.model import ExpertsSpec, LatentSpec, ModelSpec
from octavo.specs.tensors import Format, RawTensor


class LatentAttention(Struct, frozen=True):
    """Matrices [out_features, in_features] and vectors, None where this model has none.

    `k_up` and `v_up` are the halves of kv_b_proj by head: k_up [H * kv_lora_rank, qk_nope_head_dim], each head's part turned,
    v_up [H * v_head_dim, kv_lora_rank].
    """

    spec: ModelSpec
    numbers: LatentSpec
    layer: int
    q_a: Weight | None
    q_a_bias: Tensor | None
    q_a_norm: Tensor | None
    q_nope: Weight
    q_rotary: Weight
    latent: Weight
    latent_bias: Tensor | None
    latent_norm: Tensor
    k_rotary: Weight
    k_rotary_bias: Tensor | None
    k_up: Weight
    v_up: Weight
    o: Weight
    o_bias: Tensor | None

    def forward(self, ops: Ops, x: Tensor, batch: Batch, kv: KVCache) -> Tensor:
        spec, heads, rotary_dim = self.spec, self.spec.num_heads, self.numbers.qk_rope_head_dim
        query = x
        if self.q_a is not None:
            query = ops.rms_norm(ops.linear(x, self.q_a, self.q_a_bias), self.q_a_norm, spec.norm_eps)
        q = ops.head_linear(ops.linear(query, self.q_nope), self.k_up, heads)
        q_rotary = ops.rope(ops.linear(query, self.q_rotary), batch.positions, spec.rope, rotary_dim)
        latent = ops.rms_norm(ops.linear(x, self.latent, self.latent_bias), self.latent_norm, spec.norm_eps)
        k_rotary = ops.rope(ops.linear(x, self.k_rotary, self.k_rotary_bias), batch.positions, spec.rope, rotary_dim)
        ops.store_latent(latent, k_rotary, kv, self.layer, batch)
        mixed = ops.latent_attention(q, q_rotary, kv, self.layer, batch, spec.head_dim**-0.5 * self.numbers.score_factor)
        return ops.linear(ops.head_linear(mixed, self.v_up, heads), self.o, self.o_bias)


class MixtureOfExperts(Struct, frozen=True):
    """The router [E, D], and the matrices of the E experts one after another; `shared` is the MLP that every token passes."""

    numbers: ExpertsSpec
    activation: str
    router: Weight
    router_bias: Tensor | None
    experts_gate: Weight
    experts_up: Weight
    experts_down: Weight
    shared: GatedMLP | None

    def forward(self, ops: Ops, x: Tensor) -> Tensor:
        weights = ops.route(ops.linear(x, self.router), self.router_bias, self.numbers)
        mixed = ops.experts(x, weights, self.experts_gate, self.experts_up, self.experts_down, self.numbers, self.activation)
        return mixed if self.shared is None else ops.add(mixed, self.shared.forward(ops, x))


def bind_deepseek(spec: ModelSpec, tensors: Mapping[str, RawTensor], backend: Backend) -> Decoder:
    """Return the decoder with its weights loaded by `backend`. Raises ModelError."""
    latent, experts = spec.latent, spec.experts
    if latent is None:
        raise ModelError(f"model family {spec.family}: its settings name no kv_lora_rank")
    bound = bind_tensors(_parts(spec, latent, tensors), backend)

    def mlp(layer: int) -> GatedMLP | MixtureOfExperts:
        prefix = f"layers.{layer}."
        if experts is None or not spec.has_experts(layer):
            return bound.fill(GatedMLP, prefix, activation=spec.activation)
        shared = bound.fill(GatedMLP, f"{prefix}shared_", activation=spec.activation) if experts.shared_size else None
        return bound.fill(MixtureOfExperts, prefix, numbers=experts, activation=spec.activation, shared=shared)

    return assemble(spec, bound, lambda layer: bound.fill(LatentAttention, f"layers.{layer}.", spec=spec, numbers=latent, layer=layer), mlp)


def _parts(spec: ModelSpec, latent: LatentSpec, tensors: Mapping[str, RawTensor]) -> Iterator[tuple[str, RawTensor]]:
    """Yield the tensors as the layers hold them: apart what the file keeps in one matrix (the two parts of q, of kv_a and of kv_b), in
    one matrix what it keeps apart (the experts)."""
    nope, rotary, rank, value = latent.qk_nope_head_dim, latent.qk_rope_head_dim, latent.kv_lora_rank, latent.v_head_dim
    for name, raw in tensors.items():
        prefix, _, part = name.rpartition(".")
        match part:
            case "q" | "q_b":
                yield f"{prefix}.q_nope", _rows_of_heads(raw, spec.num_heads, slice(0, nope))
                yield f"{prefix}.q_rotary", _rows_of_heads(raw, spec.num_heads, slice(nope, nope + rotary))
            case "kv_a":
                yield f"{prefix}.latent", _rows_of_heads(raw, 1, slice(0, rank))
                yield f"{prefix}.k_rotary", _rows_of_heads(raw, 1, slice(rank, rank + rotary))
            case "kv_a_bias":
                yield f"{prefix}.latent_bias", _rows_of_heads(raw, 1, slice(0, rank))
                yield f"{prefix}.k_rotary_bias", _rows_of_heads(raw, 1, slice(rank, rank + rotary))
            case "kv_a_norm":
                yield f"{prefix}.latent_norm", raw
            case "kv_b":
                yield f"{prefix}.k_up", _turned(_rows_of_heads(raw, spec.num_heads, slice(0, nope)), spec.num_heads)
                yield f"{prefix}.v_up", _rows_of_heads(raw, spec.num_heads, slice(nope, nope + value))
            case "router":  # in float32 every backend takes its input as it is: near choices fall as in training
                yield name, _as_float32(raw)
            case _ if ".experts." not in name:
                yield name, raw
    for layer in range(spec.num_layers):
        if spec.experts is not None and spec.has_experts(layer):
            for part in ("gate", "up", "down"):
                experts = [tensors[f"layers.{layer}.experts.{expert}.{part}"] for expert in range(spec.experts.count)]
                yield f"layers.{layer}.experts_{part}", _stacked(experts)


def _rows_of_heads(raw: RawTensor, heads: int, rows: slice) -> RawTensor:
    """Return these rows of each head of a matrix [heads * rows of a head, K], or these numbers of a vector."""
    per_head = raw.shape[0] // heads
    data = np.frombuffer(raw.data, np.uint8).reshape(heads, per_head, -1)[:, rows]
    return RawTensor(raw.name, (heads * data.shape[1], *raw.shape[1:]), raw.format, memoryview(data.tobytes()))


def _turned(raw: RawTensor, heads: int) -> RawTensor:
    """Return [heads * N, K] as [heads * K, N]: each head's part transposed."""
    if raw.format.block_values != 1:
        raise ModelError(f"tensor {raw.name}: blocks of {raw.format.label} cannot be transposed; use a version with it in F32, F16 or BF16")
    n, k = raw.shape[0] // heads, raw.shape[1]
    values = np.frombuffer(raw.data, np.dtype(f"u{raw.format.block_bytes}")).reshape(heads, n, k)
    return RawTensor(raw.name, (heads * k, n), raw.format, memoryview(values.transpose(0, 2, 1).tobytes()))


def _stacked(raws: Sequence[RawTensor]) -> RawTensor:
    """Return matrices [N, K] of one format as one [len(raws) * N, K]."""
    first = raws[0]
    if {raw.format for raw in raws} != {first.format}:
        raise ModelError(f"tensor {first.name}: the experts of a layer must be of one format")
    return RawTensor(first.name, (len(raws) * first.shape[0], first.shape[1]), first.format, memoryview(b"".join(raw.data for raw in raws)))


def _as_float32(raw: RawTensor) -> RawTensor:
    match raw.format:
        case Format.F32:
            return raw
        case Format.F16:
            values = np.frombuffer(raw.data, np.float16).astype(np.float32)
        case Format.BF16:
            values = (np.frombuffer(raw.data, np.uint16).astype(np.uint32) << 16).view(np.float32)
        case _:
            raise ModelError(f"tensor {raw.name}: a router in {raw.format.label} is not supported; take one in F32, F16 or BF16")
    return RawTensor(raw.name, raw.shape, Format.F32, memoryview(values.tobytes()))
