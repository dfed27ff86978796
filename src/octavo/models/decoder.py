"""The decoder of the Llama family: Llama 2 and 3, SmolLM2, Mistral, Qwen2, Qwen3.

    x = embed(tokens)
    for each layer:  x = x + attention(norm(x));  x = x + mlp(norm(x))
    logits = lm_head(norm(x))

Pre-norm with RMSNorm, rotary positions, grouped-query attention, gated MLP. What differs between the families are numbers
and optional tensors: biases, a norm on each head of q and k, which positions each layer sees.

Sources: Llama (Touvron 2023) section 2; GQA (Ainslie 2023); Mistral 7B (Jiang 2023) section 2; Qwen2 (Yang 2024) section
2.2; Qwen3 (Yang 2025) section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.models.weights import DecoderWeights, LayerWeights
from octavo.ops.interface import Batch, KVCache, Ops, Tensor
from octavo.specs import ModelSpec


@dataclass(frozen=True)
class Decoder:
    spec: ModelSpec
    weights: DecoderWeights[LayerWeights]

    @property
    def weight_bytes(self) -> int:
        return self.weights.num_bytes

    def forward(self, ops: Ops, batch: Batch, kv: KVCache) -> Tensor:
        """Return the logits [S, V] of the step's sampled rows; the step's K and V are in `kv` afterwards."""
        eps = self.spec.norm_eps
        x = ops.embed(batch.token_ids, self.weights.embed)
        for index, layer in enumerate(self.weights.layers):
            x = ops.add(x, self._attention(ops, layer, index, ops.rms_norm(x, layer.attn_norm, eps), batch, kv))
            x = ops.add(x, self._mlp(ops, layer, ops.rms_norm(x, layer.mlp_norm, eps)))
        sampled = ops.take_rows(x, batch.sample_rows)
        return ops.linear(ops.rms_norm(sampled, self.weights.norm, eps), self.weights.lm_head)

    def _attention(self, ops: Ops, layer: LayerWeights, index: int, x: Tensor, batch: Batch, kv: KVCache) -> Tensor:
        spec = self.spec
        q = ops.linear(x, layer.q, layer.q_bias)
        k = ops.linear(x, layer.k, layer.k_bias)
        v = ops.linear(x, layer.v, layer.v_bias)
        if layer.q_norm is not None:
            q = ops.rms_norm(q, layer.q_norm, spec.norm_eps)
        if layer.k_norm is not None:
            k = ops.rms_norm(k, layer.k_norm, spec.norm_eps)
        q = ops.rope(q, batch.positions, spec.rope, spec.head_dim)
        k = ops.rope(k, batch.positions, spec.rope, spec.head_dim)
        ops.store_kv(k, v, kv, index, batch)
        mixed = ops.attention(q, kv, index, batch, spec.head_dim**-0.5, spec.span(index))
        return ops.linear(mixed, layer.o, layer.o_bias)

    def _mlp(self, ops: Ops, layer: LayerWeights, x: Tensor) -> Tensor:
        gate = ops.linear(x, layer.gate, layer.gate_bias)
        up = ops.linear(x, layer.up, layer.up_bias)
        return ops.linear(ops.gated(gate, up, self.spec.activation), layer.down, layer.down_bias)
