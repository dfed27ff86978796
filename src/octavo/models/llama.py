"""The Llama family: Llama 2 and 3, SmolLM2, Mistral, Qwen2, Qwen3.

Rotary positions, grouped-query attention, gated MLP. What differs between the families are numbers and optional tensors: biases, a
norm on each head of q and k, which positions each layer sees.

Sources: Llama (Touvron 2023) section 2; GQA (Ainslie 2023); Mistral 7B (Jiang 2023) section 2; Qwen2 (Yang 2024) section
2.2; Qwen3 (Yang 2025) section 2.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from octavo.models.decoder import Decoder, assemble
from octavo.models.weights import bind_tensors
from octavo.ops.interface import Backend, Batch, KVCache, Ops, Tensor, Weight
from octavo.specs.model import ModelSpec
from octavo.specs.tensors import RawTensor


class GroupedAttention(Struct, frozen=True):
    """Matrices [out_features, in_features] and vectors, None where this model has none."""

    spec: ModelSpec
    layer: int
    q: Weight
    k: Weight
    v: Weight
    o: Weight
    q_bias: Tensor | None
    k_bias: Tensor | None
    v_bias: Tensor | None
    o_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None

    def forward(self, ops: Ops, x: Tensor, batch: Batch, kv: KVCache) -> Tensor:
        spec = self.spec
        q = ops.linear(x, self.q, self.q_bias)
        k = ops.linear(x, self.k, self.k_bias)
        v = ops.linear(x, self.v, self.v_bias)
        if self.q_norm is not None:
            q = ops.rms_norm(q, self.q_norm, spec.norm_eps)
        if self.k_norm is not None:
            k = ops.rms_norm(k, self.k_norm, spec.norm_eps)
        q = ops.rope(q, batch.positions, spec.rope, spec.head_dim)
        k = ops.rope(k, batch.positions, spec.rope, spec.head_dim)
        ops.store_kv(k, v, kv, self.layer, batch)
        mixed = ops.attention(q, kv, self.layer, batch, spec.head_dim**-0.5, spec.span(self.layer))
        return ops.linear(mixed, self.o, self.o_bias)


class GatedMLP(Struct, frozen=True):
    activation: str
    gate: Weight
    up: Weight
    down: Weight
    gate_bias: Tensor | None
    up_bias: Tensor | None
    down_bias: Tensor | None

    def forward(self, ops: Ops, x: Tensor) -> Tensor:
        gate = ops.linear(x, self.gate, self.gate_bias)
        up = ops.linear(x, self.up, self.up_bias)
        return ops.linear(ops.gated(gate, up, self.activation), self.down, self.down_bias)


def bind_llama(spec: ModelSpec, tensors: Mapping[str, RawTensor], backend: Backend) -> Decoder:
    """Return the decoder with its weights loaded by `backend`."""
    bound = bind_tensors(tensors.items(), backend)
    return assemble(
        spec,
        bound,
        lambda layer: bound.fill(GroupedAttention, f"layers.{layer}.", spec=spec, layer=layer),
        lambda layer: bound.fill(GatedMLP, f"layers.{layer}.", activation=spec.activation),
    )
