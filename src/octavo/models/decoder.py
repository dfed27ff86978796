"""The decoder that all families of language models share: pre-norm with RMSNorm.

    x = embed(tokens)
    for each layer:  x = x + attention(norm(x));  x = x + mlp(norm(x))
    logits = lm_head(norm(x))

What attention and MLP are, each layer brings along: values that hold their own weights (llama.py, deepseek.py). Nothing here knows
which they are, and they know nothing of norms and residuals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from octavo.models.weights import BoundTensors
from octavo.ops.interface import Batch, KVCache, Ops, Tensor, Weight
from octavo.specs.model import ModelSpec


class Attention(Protocol):
    def forward(self, ops: Ops, x: Tensor, batch: Batch, kv: KVCache) -> Tensor:
        """Return [T, D] of the normed x [T, D]; the step's keys and values are in `kv` afterwards."""
        ...


class MLP(Protocol):
    def forward(self, ops: Ops, x: Tensor) -> Tensor:
        """Return [T, D] of the normed x [T, D]."""
        ...


class DecoderLayer(Struct, frozen=True):
    attn_norm: Tensor
    attention: Attention
    mlp_norm: Tensor
    mlp: MLP


class Decoder(Struct, frozen=True):
    """`lm_head` is `embed` itself where embeddings are tied."""

    norm_eps: float
    embed: Weight
    layers: tuple[DecoderLayer, ...]
    norm: Tensor
    lm_head: Weight
    weight_bytes: int

    def forward(self, ops: Ops, batch: Batch, kv: KVCache) -> Tensor:
        """Return the logits [S, V] of the step's sampled rows; what the step adds to the KV memory is in `kv` afterwards."""
        x = ops.embed(batch.token_ids, self.embed)
        for layer in self.layers:
            x = ops.add(x, layer.attention.forward(ops, ops.rms_norm(x, layer.attn_norm, self.norm_eps), batch, kv))
            x = ops.add(x, layer.mlp.forward(ops, ops.rms_norm(x, layer.mlp_norm, self.norm_eps)))
        sampled = ops.take_rows(x, batch.sample_rows)
        return ops.linear(ops.rms_norm(sampled, self.norm, self.norm_eps), self.lm_head)


def assemble(spec: ModelSpec, bound: BoundTensors, attention: Callable[[int], Attention], mlp: Callable[[int], MLP]) -> Decoder:
    """Return the decoder of these tensors; `attention` and `mlp` make those of a layer, by its number."""

    def layer(number: int) -> DecoderLayer:
        prefix = f"layers.{number}."
        return DecoderLayer(bound.tensors[f"{prefix}attn_norm"], attention(number), bound.tensors[f"{prefix}mlp_norm"], mlp(number))

    return Decoder(
        norm_eps=spec.norm_eps,
        embed=bound.tensors["embed"],
        layers=tuple(layer(number) for number in range(spec.num_layers)),
        norm=bound.tensors["norm"],
        lm_head=bound.tensors["embed" if spec.tie_embeddings else "lm_head"],
        weight_bytes=bound.num_bytes,
    )
