"""The definition of the verbs, against what their words say, computed another way."""

import math

import numpy as np
import pytest

from octavo.backends.reference.ops import ReferenceKVCache, ReferenceOps, ReferenceWeight
from octavo.ops.interface import Batch
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan, KVSpec
from octavo.specs.model import RopeSpec
from octavo.specs.tensors import Format

OPS = ReferenceOps()


def random(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def weight(values):
    return ReferenceWeight(values, Format.F32)


def one_row(length: int, block_ids: list[int], block_size: int, start: int = 0) -> Batch:
    positions = np.arange(start, length, dtype=np.int32)
    blocks = np.array(block_ids, np.int32)
    return Batch(
        token_ids=np.zeros(len(positions), np.int32),
        positions=positions,
        query_start=np.array([0, len(positions)], np.int32),
        context_len=np.array([length], np.int32),
        block_table=blocks[None, :],
        slot_mapping=blocks[positions // block_size].astype(np.int64) * block_size + positions % block_size,
        sample_rows=np.array([len(positions) - 1], np.int32),
    )


def test_linear_adds_the_bias_to_each_row():
    x, w, b = random(3, 5), random(4, 5, seed=1), random(4, seed=2)
    assert OPS.linear(x, weight(w), b) == pytest.approx(x @ w.T + b, abs=1e-5)


def test_a_row_of_linear_does_not_depend_on_its_neighbours():
    x, w = random(33, 301), weight(random(257, 301, seed=1))
    alone = np.concatenate([OPS.linear(x[i : i + 1], w) for i in range(len(x))])
    assert np.array_equal(OPS.linear(x, w), alone)


def test_rms_norm_of_several_groups_is_a_norm_per_group():
    x, w = random(2, 12), random(4, seed=1)
    groups = x.reshape(2, 3, 4)
    expected = groups / np.sqrt((groups**2).mean(-1, keepdims=True) + 1e-6) * w
    assert OPS.rms_norm(x, w, 1e-6) == pytest.approx(expected.reshape(2, 12), rel=1e-5)


def test_rope_turns_pairs_by_position_and_leaves_dimensions_past_its_own():
    x = np.array([[1, 2, 3, 4, 5, 6]], np.float32)
    out = OPS.rope(x, np.array([3], np.int32), RopeSpec(dim=4, theta=100.0), 6)[0]
    for a, b, angle in ((0, 2, 3.0), (1, 3, 0.3)):
        turned = complex(x[0, a], x[0, b]) * complex(math.cos(angle), math.sin(angle))
        assert (out[a], out[b]) == pytest.approx((turned.real, turned.imag), rel=1e-5)
    assert out[4:].tolist() == [5, 6]


def test_interleaved_rope_pairs_neighbours():
    x = np.array([[1, 2, 3, 4]], np.float32)
    out = OPS.rope(x, np.array([1], np.int32), RopeSpec(dim=4, theta=100.0, interleaved=True), 4)[0]
    turned = complex(3, 4) * complex(math.cos(0.1), math.sin(0.1))
    assert out[2:].tolist() == pytest.approx([turned.real, turned.imag], rel=1e-5)


@pytest.mark.parametrize("span", [FULL_ATTENTION, AttentionSpan("sliding", 5), AttentionSpan("chunked", 5)])
def test_attention_reads_the_blocks_of_its_row_in_their_order(span):
    spec = KVSpec(1, num_kv_heads=2, head_dim=4, dtype="f32", block_size=16)
    kv = ReferenceKVCache(spec, 6)
    length = 37
    q, k, v = random(length, 16), random(length, 8, seed=1), random(length, 8, seed=2)
    batch = one_row(length, [4, 1, 5], 16)
    OPS.store_kv(k, v, kv, 0, batch)
    out = OPS.attention(q, kv, 0, batch, 0.5, span)
    for position in (0, 4, 16, 36):
        first = {"full": 0, "sliding": max(0, position - 4), "chunked": position - position % 5}[span.kind]
        for head in range(4):
            columns = slice(head // 2 * 4, head // 2 * 4 + 4)
            scores = k[first : position + 1, columns] @ q[position, head * 4 : head * 4 + 4] * 0.5
            mix = np.exp(scores) / np.exp(scores).sum() @ v[first : position + 1, columns]
            assert out[position, head * 4 : head * 4 + 4] == pytest.approx(mix, abs=1e-5)


def test_attention_in_chunks_gives_the_same_bits_as_at_once():
    spec = KVSpec(1, num_kv_heads=1, head_dim=8, block_size=16)
    q, k, v = random(40, 24), random(40, 8, seed=1), random(40, 8, seed=2)
    whole_kv, chunk_kv = ReferenceKVCache(spec, 4), ReferenceKVCache(spec, 4)
    whole = one_row(40, [1, 2, 3], 16)
    OPS.store_kv(k, v, whole_kv, 0, whole)
    at_once = OPS.attention(q, whole_kv, 0, whole, 0.35)
    parts = []
    for start, end in ((0, 7), (7, 31), (31, 40)):
        chunk = one_row(end, [3, 1, 2], 16, start)
        OPS.store_kv(k[start:end], v[start:end], chunk_kv, 0, chunk)
        parts.append(OPS.attention(q[start:end], chunk_kv, 0, chunk, 0.35))
    assert np.array_equal(np.concatenate(parts), at_once)


def test_kv_is_stored_rounded_to_its_dtype():
    spec = KVSpec(1, num_kv_heads=1, head_dim=2, dtype="bf16", block_size=16)
    kv = ReferenceKVCache(spec, 2)
    batch = one_row(1, [1], 16)
    OPS.store_kv(np.array([[1.001, 3.0]], np.float32), np.zeros((1, 2), np.float32), kv, 0, batch)
    assert kv.read(kv.k, 0, batch.block_table[0], 1).tolist() == [[[1.0, 3.0]]]
    assert kv.k.nbytes + kv.v.nbytes == spec.bytes_per_block * 2


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ("silu", lambda x: x / (1 + math.exp(-x))),
        ("gelu_tanh", lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    ],
)
def test_gated_multiplies_the_activated_gate_with_up(activation, expected):
    gate, up = random(3, 7), random(3, 7, seed=1)
    assert OPS.gated(gate, up, activation) == pytest.approx(np.vectorize(expected)(gate.astype(float)) * up, rel=1e-5)


def test_silu_of_a_very_negative_number_is_zero():
    assert OPS.gated(np.array([[-200.0]], np.float32), np.ones((1, 1), np.float32), "silu")[0, 0] == 0
