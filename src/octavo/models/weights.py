"""A checkpoint's tensors, bound by name to the places of a decoder and laid out by a backend.

The names are Octavo's own (`layers.0.q`); loaders translate into them, and have checked by then that every tensor which
the spec asks for is there, in its shape, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar, cast

from octavo.ops.interface import Backend, Tensor, Weight
from octavo.specs import ModelSpec, RawTensor

Layer = TypeVar("Layer")
Kind = TypeVar("Kind")


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


def fill(kind: type[Kind], parts: Mapping[str, Any], prefix: str = "") -> Kind:
    """Return `kind`, a dataclass whose fields are the parts of these names, None for those that there are not."""
    return kind(**{field.name: parts.get(prefix + field.name) for field in fields(cast(Any, kind))})


def bind_weights(
    make_layer: Callable[[Mapping[str, Any]], Layer], spec: ModelSpec, tensors: Iterable[tuple[str, RawTensor]], backend: Backend
) -> DecoderWeights[Layer]:
    """Return the weights of a decoder, loaded by `backend`: tensors of two dimensions as matrices, of one as vectors.

    `make_layer` makes a layer of its tensors, by their names without "layers.N."."""
    whole: dict[str, Any] = {}
    layers: list[dict[str, Any]] = [{} for _ in range(spec.num_layers)]
    num_bytes = 0
    for name, raw in tensors:
        if len(raw.shape) == 2:
            matrix = backend.load_matrix(raw)
            bound, num_bytes = matrix, num_bytes + matrix.num_bytes
        else:
            bound = backend.load_vector(raw)
            num_bytes += 4 * len(bound)
        _, layer, part = name.split(".") if name.startswith("layers.") else ("", "", name)
        (layers[int(layer)] if layer else whole)[part] = bound
    return DecoderWeights(
        embed=whole["embed"],
        layers=tuple(make_layer(parts) for parts in layers),
        norm=whole["norm"],
        lm_head=whole["embed" if spec.tie_embeddings else "lm_head"],
        num_bytes=num_bytes,
    )
