"""The verbs of `Ops` on NumPy arrays, each a call into C++: the eager path, bit for bit what the compiled program computes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from octavo.backends.native import _native
from octavo.backends.native.tensors import experts_of, matrix_of, memory_of, routing_of
from octavo.ops.interface import Batch, IntArray, KVCache, Weight
from octavo.ops.rotary import attention_factor, rope_frequencies
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan
from octavo.specs.model import ExpertsSpec, RopeSpec

FloatArray = npt.NDArray[np.float32]


class NativeOps:
    """See `octavo.ops.interface.Ops`, whose words these are."""

    def __init__(self, device: _native.Device) -> None:
        self._device = device

    def embed(self, ids: IntArray, weight: Weight) -> FloatArray:
        out = np.empty((len(ids), weight.shape[1]), np.float32)
        self._device.embed(matrix_of(weight), ids, out)
        return out

    def rms_norm(self, x: FloatArray, weight: FloatArray, eps: float) -> FloatArray:
        out = np.empty_like(x)
        self._device.rms_norm(x, weight, eps, out)
        return out

    def linear(self, x: FloatArray, weight: Weight, bias: FloatArray | None = None) -> FloatArray:
        out = np.empty((len(x), weight.shape[0]), np.float32)
        self._device.linear(matrix_of(weight), x, bias, out)
        return out

    def rope(self, x: FloatArray, positions: IntArray, rope: RopeSpec, head_dim: int) -> FloatArray:
        out = np.empty_like(x)
        self._device.rope(x, positions, rope_frequencies(rope), attention_factor(rope), rope.interleaved, head_dim, out)
        return out

    def store_kv(self, k: FloatArray, v: FloatArray, kv: KVCache, layer: int, batch: Batch) -> None:
        group, place = kv.spec.place(layer)
        _, slots = batch.of_group(group, len(kv.spec.spans))
        self._device.store_kv(memory_of(kv), place, k, v, slots)

    def attention(
        self, q: FloatArray, kv: KVCache, layer: int, batch: Batch, scale: float, span: AttentionSpan = FULL_ATTENTION
    ) -> FloatArray:
        return self._attend(q, None, kv, layer, batch, scale, span)

    def head_linear(self, x: FloatArray, weight: Weight, heads: int) -> FloatArray:
        out = np.empty((len(x), weight.shape[0]), np.float32)
        self._device.head_linear(matrix_of(weight), x, heads, out)
        return out

    def store_latent(self, latent: FloatArray, rotary: FloatArray, kv: KVCache, layer: int, batch: Batch) -> None:
        self.store_kv(latent, rotary, kv, layer, batch)

    def latent_attention(self, q: FloatArray, q_rotary: FloatArray, kv: KVCache, layer: int, batch: Batch, scale: float) -> FloatArray:
        return self._attend(q, q_rotary, kv, layer, batch, scale, FULL_ATTENTION)

    def _attend(
        self, q: FloatArray, q_rotary: FloatArray | None, kv: KVCache, layer: int, batch: Batch, scale: float, span: AttentionSpan
    ) -> FloatArray:
        out = np.empty_like(q)
        group, place = kv.spec.place(layer)
        block_table, slots = batch.of_group(group, len(kv.spec.spans))
        window, chunk = window_and_chunk(span)
        of_group = replace(batch, block_table=np.ascontiguousarray(block_table), slot_mapping=slots)
        self._device.attention(memory_of(kv), place, q, q_rotary, scale, window, chunk, *arrays_of(of_group), out)
        return out

    def gated(self, gate: FloatArray, up: FloatArray, activation: str) -> FloatArray:
        out = np.empty_like(gate)
        self._device.gated(gate, up, activation, out)
        return out

    def route(self, logits: FloatArray, bias: FloatArray | None, experts: ExpertsSpec) -> FloatArray:
        out = np.empty_like(logits)
        self._device.route(routing_of(experts), logits, bias, out)
        return out

    def experts(
        self, x: FloatArray, weights: FloatArray, gate: Weight, up: Weight, down: Weight, experts: ExpertsSpec, activation: str
    ) -> FloatArray:
        out = np.empty_like(x)
        self._device.experts(experts_of(gate, up, down, experts, activation), x, weights, out)
        return out

    def add(self, x: FloatArray, y: FloatArray) -> FloatArray:
        out = np.empty_like(x)
        self._device.add(x, y, out)
        return out

    def take_rows(self, x: FloatArray, rows: IntArray) -> FloatArray:
        return x[rows]

    def layer_norm(self, x: FloatArray, weight: FloatArray, bias: FloatArray, eps: float) -> FloatArray:
        out = np.empty_like(x)
        self._device.layer_norm(x, weight, bias, eps, out)
        return out

    def activate(self, x: FloatArray, activation: str) -> FloatArray:
        out = np.empty_like(x)
        self._device.activate(x, activation, out)
        return out

    def whole_attention(self, q: FloatArray, k: FloatArray, v: FloatArray, batch: Batch, head_dim: int, scale: float) -> FloatArray:
        out = np.empty_like(q)
        self._device.whole_attention(q, k, v, scale, head_dim, *arrays_of(batch), out)
        return out


def window_and_chunk(span: AttentionSpan) -> tuple[int | None, int | None]:
    """Return the span as C++ takes it."""
    return (span.size if span.kind == "sliding" else None), (span.size if span.kind == "chunked" else None)


def arrays_of(batch: Batch) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray, npt.NDArray[np.int64], IntArray]:
    """Return the batch's arrays in the order in which C++ takes them."""
    return (
        batch.token_ids,
        batch.positions,
        batch.query_start,
        batch.context_len,
        batch.block_table,
        batch.slot_mapping,
        batch.sample_rows,
    )
