"""A checkpoint's tensors, bound by name to the places of a decoder and laid out by a backend.

The names are Octavo's own (`layers.0.q`); loaders translate into them, and have checked by then that every tensor which
the spec asks for is there, in its shape, and no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar, cast

from octavo.ops.interface import Backend, Tensor, Weight
from octavo.specs import ModelSpec, RawTensor

Layer = TypeVar("Layer")


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
class DecoderWeights(Generic[Layer]):
    """`lm_head` is `embed` itself where embeddings are tied. `num_bytes`: what the backend holds, shared matrices once."""

    embed: Weight
    layers: tuple[Layer, ...]
    norm: Tensor
    lm_head: Weight
    num_bytes: int


def bind_weights(
    layer_type: type[Layer], spec: ModelSpec, tensors: Iterable[tuple[str, RawTensor]], backend: Backend
) -> DecoderWeights[Layer]:
    """Return the weights of a decoder, loaded by `backend`: tensors of two dimensions as matrices, of one as vectors.

    `layer_type`: a dataclass whose fields are the places of a layer."""
    matrices: dict[str, Weight] = {}
    vectors: dict[str, Tensor] = {}
    for name, raw in tensors:
        if len(raw.shape) == 2:
            matrices[name] = backend.load_matrix(raw)
        else:
            vectors[name] = backend.load_vector(raw)
    bound: dict[str, Any] = {**matrices, **vectors}
    places = [field.name for field in fields(cast(Any, layer_type))]

    def layer(index: int) -> Layer:
        return layer_type(**{place: bound.get(f"layers.{index}.{place}") for place in places})

    return DecoderWeights(
        embed=matrices["embed"],
        layers=tuple(layer(index) for index in range(spec.num_layers)),
        norm=vectors["norm"],
        lm_head=matrices["embed" if spec.tie_embeddings else "lm_head"],
        num_bytes=sum(weight.num_bytes for weight in matrices.values()) + sum(4 * len(vector) for vector in vectors.values()),
    )
