"""A checkpoint's tensors, bound by name to the places of a decoder and laid out by a backend.

The names are Octavo's own (`layers.0.q`); loaders translate into them, and have checked by then that every tensor which
the spec asks for is there, in its shape, and no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from octavo.ops.interface import Backend, Tensor, Weight
from octavo.specs import ModelSpec, RawTensor


@dataclass(frozen=True)
class LayerWeights:
    """One layer: matrices [out_features, in_features] and vectors, None where this model has none."""

    attn_norm: Tensor
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
    mlp_norm: Tensor
    gate: Weight
    up: Weight
    down: Weight
    gate_bias: Tensor | None
    up_bias: Tensor | None
    down_bias: Tensor | None


@dataclass(frozen=True)
class DecoderWeights:
    """`lm_head` is `embed` itself where embeddings are tied. `num_bytes`: what the backend holds, shared matrices once."""

    embed: Weight
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    lm_head: Weight
    num_bytes: int


def bind_weights(spec: ModelSpec, tensors: Mapping[str, RawTensor], backend: Backend) -> DecoderWeights:
    """Return the weights of a decoder, loaded by `backend`: tensors of two dimensions as matrices, of one as vectors."""
    matrices = {name: backend.load_matrix(raw) for name, raw in tensors.items() if len(raw.shape) == 2}
    vectors = {name: backend.load_vector(raw) for name, raw in tensors.items() if len(raw.shape) == 1}
    bound: dict[str, Any] = {**matrices, **vectors}

    def layer(index: int) -> LayerWeights:
        parts: dict[str, Any] = {field.name: bound.get(f"layers.{index}.{field.name}") for field in fields(LayerWeights)}
        return LayerWeights(**parts)

    return DecoderWeights(
        embed=matrices["embed"],
        layers=tuple(layer(index) for index in range(spec.num_layers)),
        norm=vectors["norm"],
        lm_head=matrices["embed" if spec.tie_embeddings else "lm_head"],
        num_bytes=sum(weight.num_bytes for weight in matrices.values()) + sum(4 * len(vector) for vector in vectors.values()),
    )
