"""A checkpoint's tensors, bound by name to the places of a decoder and laid out by a backend.

`expected_shapes` is the whole list of what a decoder of these numbers has, under Octavo's own tensor names (loaders
translate into them). A checkpoint must hold exactly that: whatever is missing, left over or mis-shaped is named in one
error, before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from octavo.errors import ModelError
from octavo.ops.interface import Backend, Tensor, Weight
from octavo.specs import ModelSpec, RawTensor

_NAMED_PROBLEMS = 12  # an error names this many; a wrong family gets hundreds


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
    """Return the weights of a decoder, loaded by `backend`. Raises ModelError, naming every tensor that does not fit."""
    expected = expected_shapes(spec)
    _check(expected, tensors)
    matrices = {name: backend.load_matrix(tensors[name]) for name, shape in expected.items() if len(shape) == 2}
    vectors = {name: backend.load_vector(tensors[name]) for name, shape in expected.items() if len(shape) == 1}
    bound = {**matrices, **vectors}
    return DecoderWeights(
        embed=matrices["embed"],
        layers=tuple(
            LayerWeights(**{field.name: bound.get(f"layers.{layer}.{field.name}") for field in fields(LayerWeights)})
            for layer in range(spec.num_layers)
        ),
        norm=vectors["norm"],
        lm_head=matrices["embed" if spec.tie_embeddings else "lm_head"],
        num_bytes=sum(weight.num_bytes for weight in matrices.values()) + sum(4 * len(vector) for vector in vectors.values()),
    )


def expected_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor that a decoder of these numbers has, by name."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    q_width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "q": (q_width, hidden),
        "k": (kv_width, hidden),
        "v": (kv_width, hidden),
        "o": (hidden, q_width),
        "mlp_norm": (hidden,),
        "gate": (inner, hidden),
        "up": (inner, hidden),
        "down": (hidden, inner),
    }
    if spec.qkv_bias:
        layer |= {"q_bias": (q_width,), "k_bias": (kv_width,), "v_bias": (kv_width,)}
    if spec.o_bias:
        layer |= {"o_bias": (hidden,)}
    if spec.qk_norm:
        layer |= {"q_norm": (spec.head_dim,), "k_norm": (spec.head_dim,)}
    if spec.mlp_bias:
        layer |= {"gate_bias": (inner,), "up_bias": (inner,), "down_bias": (hidden,)}
    shapes: dict[str, tuple[int, ...]] = {"embed": (spec.vocab_size, hidden), "norm": (hidden,)}
    if not spec.tie_embeddings:
        shapes["lm_head"] = (spec.vocab_size, hidden)
    for index in range(spec.num_layers):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes


def _check(expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, RawTensor]) -> None:
    problems = [f"{name} is missing" for name in expected.keys() - tensors.keys()]
    problems += [f"{name} is left over" for name in tensors.keys() - expected.keys()]
    problems += [
        f"{name} has shape {tensors[name].shape}, not {shape}"
        for name, shape in expected.items()
        if name in tensors and tensors[name].shape != shape
    ]
    if problems:
        named = "; ".join(sorted(problems)[:_NAMED_PROBLEMS])
        rest = f"; and {len(problems) - _NAMED_PROBLEMS} more" if len(problems) > _NAMED_PROBLEMS else ""
        raise ModelError(f"the model's tensors do not fit its config: {named}{rest}")
