"""The encoder of the BERT family: whole texts in, the vectors of their tokens out, or the scores of their classes.

    x = norm(word + position + segment)
    for each layer:  x = norm(x + attention(x));  x = norm(x + mlp(x))
    scores = classifier(tanh(pooler(x)))        of sampled tokens, where the model has a classification head

Post-norm with LayerNorm, learned positions, every token sees every other, biases everywhere, an MLP without a gate. There is
no KV memory: a step holds whole texts.

Source: BERT (Devlin 2019), section 3; Attention Is All You Need (Vaswani 2017), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from octavo.models.weights import bind_tensors
from octavo.ops.interface import Backend, Batch, KVCache, Ops, Tensor, Weight
from octavo.specs.model import EncoderSpec
from octavo.specs.tensors import RawTensor


class EncoderLayer(Struct, frozen=True):
    q: Weight
    q_bias: Tensor
    k: Weight
    k_bias: Tensor
    v: Weight
    v_bias: Tensor
    o: Weight
    o_bias: Tensor
    attn_norm: Tensor
    attn_norm_bias: Tensor
    up: Weight
    up_bias: Tensor
    down: Weight
    down_bias: Tensor
    mlp_norm: Tensor
    mlp_norm_bias: Tensor


class Classifier(Struct, frozen=True):
    """The head of a classification model: `pooler` [D, D], `classifier` [labels, D]."""

    pooler: Weight
    pooler_bias: Tensor
    classifier: Weight
    classifier_bias: Tensor


class Encoder(Struct, frozen=True):
    spec: EncoderSpec
    embed: Weight
    position_embed: Weight
    type_embed: Weight
    embed_norm: Tensor
    embed_norm_bias: Tensor
    layers: tuple[EncoderLayer, ...]
    head: Classifier | None
    weight_bytes: int

    def forward(self, ops: Ops, batch: Batch, kv: KVCache) -> Tensor:
        """Return the sampled tokens' last vectors [S, D], or scores [S, labels] before any activation; `kv` is not used."""
        x = ops.add(ops.embed(batch.token_ids, self.embed), ops.embed(batch.positions, self.position_embed))
        x = ops.add(x, ops.embed(batch.token_types, self.type_embed))
        x = ops.layer_norm(x, self.embed_norm, self.embed_norm_bias, self.spec.norm_eps)
        for layer in self.layers:
            x = self._layer(ops, layer, x, batch)
        sampled = ops.take_rows(x, batch.sample_rows)
        if self.head is None:
            return sampled
        pooled = ops.activate(ops.linear(sampled, self.head.pooler, self.head.pooler_bias), "tanh")
        return ops.linear(pooled, self.head.classifier, self.head.classifier_bias)

    def _layer(self, ops: Ops, layer: EncoderLayer, x: Tensor, batch: Batch) -> Tensor:
        spec = self.spec
        q = ops.linear(x, layer.q, layer.q_bias)
        k = ops.linear(x, layer.k, layer.k_bias)
        v = ops.linear(x, layer.v, layer.v_bias)
        mixed = ops.whole_attention(q, k, v, batch, spec.head_dim, spec.head_dim**-0.5)
        x = ops.add(x, ops.linear(mixed, layer.o, layer.o_bias))
        x = ops.layer_norm(x, layer.attn_norm, layer.attn_norm_bias, spec.norm_eps)
        inner = ops.activate(ops.linear(x, layer.up, layer.up_bias), spec.activation)
        x = ops.add(x, ops.linear(inner, layer.down, layer.down_bias))
        return ops.layer_norm(x, layer.mlp_norm, layer.mlp_norm_bias, spec.norm_eps)


def bind_encoder(spec: EncoderSpec, tensors: Mapping[str, RawTensor], backend: Backend) -> Encoder:
    """Return the encoder with its weights loaded by `backend`."""
    bound = bind_tensors(tensors.items(), backend)
    layers = tuple(bound.fill(EncoderLayer, f"layers.{layer}.") for layer in range(spec.num_layers))
    head = bound.fill(Classifier) if spec.labels else None
    return bound.fill(Encoder, spec=spec, layers=layers, head=head, weight_bytes=bound.num_bytes)
