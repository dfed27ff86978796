"""The definition of every verb of `Ops`: NumPy float32, one row at a time where the order of a sum could depend on the
number of rows. Slow and clear on purpose; other backends are measured against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from octavo.backends.reference.kv_values import ByteArray, decode, decode_latents, encode, encode_latents
from octavo.ops.interface import Batch, IntArray, KVCache, Weight
from octavo.ops.rotary import cos_sin
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan, KVSpec
from octavo.specs.model import ExpertsSpec, RopeSpec
from octavo.specs.tensors import Format

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ReferenceWeight:
    """A matrix, dequantised: `values` [out_features, in_features] float32. `format` is the file's."""

    values: FloatArray
    format: Format

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    @property
    def num_bytes(self) -> int:
        return self.values.nbytes


class ReferenceKVCache:
    """K and V as [layers, slots, kv_heads, bytes of a vector], see kv_values.py; a slot is block id * block_size + offset.

    Latents with their rotary keys are kept as K; V is then of no bytes."""

    def __init__(self, spec: KVSpec, num_blocks: int) -> None:
        self.spec = spec
        self.num_blocks = num_blocks
        shape = (spec.num_layers, num_blocks * spec.block_size, spec.num_kv_heads, spec.vector_bytes)
        self.k = np.zeros(shape, np.uint8)
        self.v = np.zeros((*shape[:3], 0 if spec.is_latent else spec.vector_bytes), np.uint8)

    def read_block(self, block_id: int) -> bytes:
        slots = self._slots(block_id)
        return self.k[:, slots].tobytes() + self.v[:, slots].tobytes()

    def write_block(self, block_id: int, data: bytes) -> None:
        if len(data) != self.spec.bytes_per_block:
            raise ValueError(f"{len(data):,} bytes for a block of {self.spec.bytes_per_block:,}")
        slots = self._slots(block_id)
        k_bytes = self.k[:, slots].nbytes
        for stored, part in ((self.k, data[:k_bytes]), (self.v, data[k_bytes:])):
            stored[:, slots] = np.frombuffer(part, np.uint8).reshape(stored[:, slots].shape)

    def _slots(self, block_id: int) -> slice:
        if not 0 <= block_id < self.num_blocks:
            raise ValueError(f"block {block_id}; there are {self.num_blocks:,}")
        return slice(block_id * self.spec.block_size, (block_id + 1) * self.spec.block_size)

    def write(self, stored: ByteArray, layer: int, slots: npt.NDArray[np.int64], x: FloatArray) -> None:
        """Write x [T, kv_heads * dim], rounded, to `stored`: self.k or self.v."""
        heads = x.reshape(len(x), self.spec.num_kv_heads, self.spec.key_dim)
        if self.spec.is_latent:
            stored[layer, slots] = encode_latents(heads, self.spec.head_dim, self.spec.dtype)
        else:
            stored[layer, slots] = encode(heads, self.spec.dtype)

    def read(self, stored: ByteArray, layer: int, block_ids: IntArray, length: int) -> FloatArray:
        """Return the first `length` positions of a row with these blocks: [length, kv_heads, dim] float32."""
        positions = np.arange(length)
        slots = block_ids[positions // self.spec.block_size].astype(np.int64) * self.spec.block_size + positions % self.spec.block_size
        if self.spec.is_latent:
            return decode_latents(stored[layer, slots], self.spec.head_dim, self.spec.dtype)
        return decode(stored[layer, slots], self.spec.dtype)


class ReferenceOps:
    """See `octavo.ops.interface.Ops`, whose words these are."""

    def embed(self, ids: IntArray, weight: Weight) -> FloatArray:
        return _values(weight)[ids]

    def rms_norm(self, x: FloatArray, weight: FloatArray, eps: float) -> FloatArray:
        groups = x.reshape(len(x), x.shape[1] // len(weight), len(weight))  # x may have no rows
        mean_square = np.mean(np.square(groups, dtype=np.float64), axis=-1, keepdims=True)
        normed: FloatArray = (groups / np.sqrt(mean_square + eps)).astype(np.float32)
        return (normed * weight).reshape(x.shape)

    def linear(self, x: FloatArray, weight: Weight, bias: FloatArray | None = None) -> FloatArray:
        # One product per row: a matrix product may sum in another order when it has other rows.
        values = _values(weight)
        out = np.empty((len(x), len(values)), np.float32)
        for row in range(len(x)):
            np.dot(values, x[row], out=out[row])
        return out if bias is None else out + bias

    def rope(self, x: FloatArray, positions: IntArray, rope: RopeSpec, head_dim: int) -> FloatArray:
        cos, sin = (table.astype(np.float32)[:, None, :] for table in cos_sin(rope, positions))
        out = x.reshape(len(x), -1, head_dim).copy()
        half = rope.dim // 2
        first, second = (slice(0, rope.dim, 2), slice(1, rope.dim, 2)) if rope.interleaved else (slice(0, half), slice(half, rope.dim))
        a, b = out[..., first].copy(), out[..., second].copy()
        out[..., first] = a * cos - b * sin
        out[..., second] = b * cos + a * sin
        return out.reshape(x.shape)

    def store_kv(self, k: FloatArray, v: FloatArray, kv: KVCache, layer: int, batch: Batch) -> None:
        cache = _own(kv)
        group, place = kv.spec.place(layer)
        _, slots = batch.of_group(group, len(kv.spec.spans))
        cache.write(cache.k, place, slots, k)
        cache.write(cache.v, place, slots, v)

    def attention(
        self, q: FloatArray, kv: KVCache, layer: int, batch: Batch, scale: float, span: AttentionSpan = FULL_ATTENTION
    ) -> FloatArray:
        cache = _own(kv)
        group, place = kv.spec.place(layer)
        block_table, _ = batch.of_group(group, len(kv.spec.spans))
        heads = q.reshape(len(q), cache.spec.num_kv_heads, -1, cache.spec.head_dim)  # query heads grouped by KV head
        out = np.empty_like(heads)
        for row, length in enumerate(batch.context_len):
            keys = cache.read(cache.k, place, block_table[row], length)
            values = cache.read(cache.v, place, block_table[row], length)
            _attend_row(heads, keys, values, row, batch, scale, span, out)
        return out.reshape(q.shape)

    def head_linear(self, x: FloatArray, weight: Weight, heads: int) -> FloatArray:
        parts = zip(np.split(x, heads, axis=1), np.split(_values(weight), heads), strict=True)
        return np.concatenate([self.linear(part, ReferenceWeight(values, weight.format)) for part, values in parts], axis=1)

    def store_latent(self, latent: FloatArray, rotary: FloatArray, kv: KVCache, layer: int, batch: Batch) -> None:
        cache = _own(kv)
        group, place = kv.spec.place(layer)
        _, slots = batch.of_group(group, len(kv.spec.spans))
        cache.write(cache.k, place, slots, np.concatenate([latent, rotary], axis=1))

    def latent_attention(self, q: FloatArray, q_rotary: FloatArray, kv: KVCache, layer: int, batch: Batch, scale: float) -> FloatArray:
        cache = _own(kv)
        group, place = kv.spec.place(layer)
        block_table, _ = batch.of_group(group, len(kv.spec.spans))
        rank, rotary_dim = cache.spec.head_dim, cache.spec.rotary_dim
        # All heads are one group, of one KV head.
        heads = np.concatenate([q.reshape(len(q), 1, -1, rank), q_rotary.reshape(len(q), 1, -1, rotary_dim)], axis=-1)
        out = np.empty((*heads.shape[:-1], rank), np.float32)
        for row, length in enumerate(batch.context_len):
            keys = cache.read(cache.k, place, block_table[row], length)
            _attend_row(heads, keys, keys[..., :rank], row, batch, scale, FULL_ATTENTION, out)
        return out.reshape(q.shape)

    def gated(self, gate: FloatArray, up: FloatArray, activation: str) -> FloatArray:
        return _ACTIVATIONS[activation](gate) * up

    def route(self, logits: FloatArray, bias: FloatArray | None, experts: ExpertsSpec) -> FloatArray:
        return np.array([_route_row(row, bias, experts) for row in logits], np.float32).reshape(logits.shape)

    def experts(
        self, x: FloatArray, weights: FloatArray, gate: Weight, up: Weight, down: Weight, experts: ExpertsSpec, activation: str
    ) -> FloatArray:
        out = np.zeros_like(x)
        gates, ups, downs = (np.split(_values(weight), experts.count) for weight in (gate, up, down))
        for expert in range(experts.count):
            rows = np.flatnonzero(weights[:, expert])

            def multiply(part: FloatArray, values: list[FloatArray], expert: int = expert) -> FloatArray:
                return self.linear(part, ReferenceWeight(values[expert], gate.format))

            inner = self.gated(multiply(x[rows], gates), multiply(x[rows], ups), activation)
            out[rows] += weights[rows, expert, None] * multiply(inner, downs)
        return out

    def add(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return x + y

    def take_rows(self, x: FloatArray, rows: IntArray) -> FloatArray:
        return x[rows]

    def layer_norm(self, x: FloatArray, weight: FloatArray, bias: FloatArray, eps: float) -> FloatArray:
        centred = x - np.mean(x, axis=-1, keepdims=True, dtype=np.float64)
        variance = np.mean(np.square(centred), axis=-1, keepdims=True)
        normed: FloatArray = (centred / np.sqrt(variance + eps)).astype(np.float32)
        return normed * weight + bias

    def activate(self, x: FloatArray, activation: str) -> FloatArray:
        return _ACTIVATIONS[activation](x)

    def whole_attention(self, q: FloatArray, k: FloatArray, v: FloatArray, batch: Batch, head_dim: int, scale: float) -> FloatArray:
        out = np.empty_like(q)
        for begin, end in pairwise(batch.query_start.tolist()):
            queries, keys, values = (x[begin:end].reshape(end - begin, -1, head_dim).transpose(1, 0, 2) for x in (q, k, v))
            scores = np.matmul(queries, keys.transpose(0, 2, 1)) * np.float32(scale)  # [H, queries, keys]
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            out[begin:end] = np.matmul(weights, values).transpose(1, 0, 2).reshape(end - begin, -1)
        return out


def _attend_row(
    heads: FloatArray, keys: FloatArray, values: FloatArray, row: int, batch: Batch, scale: float, span: AttentionSpan, out: FloatArray
) -> None:
    """Write to `out` the causal attention of one row's tokens: heads [T, kv_heads, group, dim], keys and values [length, kv_heads, dim]."""
    for token in range(batch.query_start[row], batch.query_start[row + 1]):
        position = batch.positions[token]
        seen = slice(span.first_seen(int(position)), position + 1)
        # [kv_heads, group, dim] x [kv_heads, dim, seen]
        scores = np.matmul(heads[token], keys[seen].transpose(1, 2, 0)) * np.float32(scale)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out[token] = np.matmul(weights, values[seen].transpose(1, 0, 2))


def _route_row(logits: FloatArray, bias: FloatArray | None, experts: ExpertsSpec) -> npt.NDArray[np.float64]:
    """Return the weights of one token's experts."""
    wide = logits.astype(np.float64)
    with np.errstate(over="ignore"):
        scores = 1 / (1 + np.exp(-wide)) if experts.scoring == "sigmoid" else np.exp(wide - wide.max())
    if experts.scoring == "softmax":
        scores /= scores.sum()
    choice = scores if bias is None else scores + bias
    groups = choice.reshape(experts.num_groups, -1)
    best_two = np.sort(groups, axis=1)[:, -2:]
    worth = best_two.sum(axis=1) if experts.group_worth == "two_best" else best_two[:, -1]
    kept = np.argsort(-worth, kind="stable")[: experts.groups_kept]
    is_open = np.repeat(np.isin(np.arange(experts.num_groups), kept), groups.shape[1])
    picked = np.argsort(np.where(is_open, -choice, np.inf), kind="stable")[: experts.per_token]
    weights = np.zeros_like(scores)
    weights[picked] = scores[picked] if not np.isnan(scores).any() else np.nan
    if experts.normalize:
        weights /= weights.sum() + 1e-20
    return weights * experts.scaling


def _silu(x: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):  # e^-x may be infinite: then the result is 0, as it should be
        result: FloatArray = x / (1 + np.exp(-x))
    return result


def _gelu_tanh(x: FloatArray) -> FloatArray:
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    result: FloatArray = np.float32(0.5) * x * (1 + np.tanh(inner))
    return result


def _gelu(x: FloatArray) -> FloatArray:
    phi = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x.ravel().tolist()]).reshape(x.shape)
    result: FloatArray = (x * phi).astype(np.float32)
    return result


def _relu(x: FloatArray) -> FloatArray:
    return np.maximum(x, np.float32(0))


def _tanh(x: FloatArray) -> FloatArray:
    return np.tanh(x)


_ACTIVATIONS = {"silu": _silu, "gelu": _gelu, "gelu_tanh": _gelu_tanh, "relu": _relu, "tanh": _tanh}


def _values(weight: Weight) -> FloatArray:
    if not isinstance(weight, ReferenceWeight):
        raise TypeError(f"the reference backend was given a weight of {type(weight).__name__}")
    return weight.values


def _own(kv: KVCache) -> ReferenceKVCache:
    if not isinstance(kv, ReferenceKVCache):
        raise TypeError(f"the reference backend was given KV memory of {type(kv).__name__}")
    return kv
