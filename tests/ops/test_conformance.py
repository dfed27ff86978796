"""Every op of `native`, on every ISA of this CPU, against `reference`. Outputs are fresh memory filled with NaN before, so a
value that is not written is seen; KV slots that no row owns hold NaN, so a value that is read by mistake is seen."""

import bounds
import cases
import numpy as np
import pytest

from octavo.backends.native import ops as native_ops
from octavo.backends.reference.kv_values import decode, encode
from octavo.specs.kv import KV_DTYPES, KVSpec
from octavo.specs.model import RopeSpec
from octavo.specs.tensors import Format

QUANTISED = [format for format in Format if format.block_values > 1]


@pytest.fixture(autouse=True)
def poisoned_outputs(monkeypatch):
    """Outputs that the eager verbs allocate start as NaN."""

    class Poisoned:
        def __getattr__(self, name):
            return getattr(np, name)

        def empty(self, shape, dtype):
            return np.full(shape, np.nan, dtype)

        def empty_like(self, x):
            return np.full_like(x, np.nan)

    monkeypatch.setattr(native_ops, "np", Poisoned())


def assert_within(name, actual, expected):
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= bounds.ELEMENTWISE[name] * np.abs(expected).max()


@pytest.mark.parametrize("format", Format)
def test_embed_gives_the_rows_of_the_matrix(native, reference, format):
    raw = cases.raw_matrix(format, 37, 512)
    ids = np.array([36, 0, 17, 17, 3], np.int32)
    actual, expected = (cases.ops_of(backend).embed(ids, backend.load_matrix(raw)) for backend in (native, reference))
    assert_within("embed", actual, expected)


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize(("rows", "n", "k"), [(1, 16, 256), (2, 37, 256), (3, 1, 512), (19, 50, 768), (61, 97, 256)])
def test_linear_multiplies_rows_with_the_matrix(native, reference, format, rows, n, k):
    raw, x, bias = cases.raw_matrix(format, n, k), cases.floats(rows, k, seed=1), cases.floats(n, seed=2)
    actual, expected = (cases.ops_of(backend).linear(x, backend.load_matrix(raw), bias) for backend in (native, reference))
    weight = reference.load_matrix(raw).values
    size = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(weight, axis=1)[None, :]
    bound = bounds.LINEAR["quantised" if format in QUANTISED else format.label]
    assert np.all(np.abs(actual - expected) <= bound * size)


@pytest.mark.parametrize(("k", "format"), [(1, Format.F32), (7, Format.F16), (13, Format.BF16), (32, Format.Q8_0), (576, Format.Q4_1)])
def test_linear_takes_any_whole_number_of_blocks(native, reference, k, format):
    raw, x = cases.raw_matrix(format, 5, k), cases.floats(4, k, seed=1)
    actual, expected = (cases.ops_of(backend).linear(x, backend.load_matrix(raw)) for backend in (native, reference))
    size = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(reference.load_matrix(raw).values, axis=1)[None, :]
    assert np.all(np.abs(actual - expected) <= bounds.LINEAR["quantised" if format in QUANTISED else format.label] * size)


@pytest.mark.parametrize(("rows", "groups", "width"), [(1, 1, 576), (3, 1, 7), (5, 9, 64), (2, 3, 80), (67, 1, 131)])
def test_rms_norm_normalises_each_group(native, reference, rows, groups, width):
    x, weight = cases.floats(rows, groups * width), cases.floats(width, seed=1)
    actual, expected = (cases.ops_of(backend).rms_norm(x, weight, 1e-5) for backend in (native, reference))
    assert_within("rms_norm", actual, expected)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("head_dim", "dim"), [(64, 64), (80, 32), (96, 96), (128, 64), (256, 256), (8, 6), (6, 6)])
def test_rope_turns_the_first_dimensions_of_each_head(native, reference, interleaved, head_dim, dim):
    x = cases.floats(5, 3 * head_dim)
    positions = np.array([0, 1, 31, 4096, 131071], np.int32)
    rope = RopeSpec(dim=dim, theta=500_000.0, interleaved=interleaved)
    actual, expected = (cases.ops_of(backend).rope(x, positions, rope, head_dim) for backend in (native, reference))
    assert_within("rope", actual, expected)


@pytest.mark.parametrize(
    "rope",
    [
        RopeSpec(dim=64, kind="linear", factor=4.0),
        RopeSpec(dim=64, theta=5e5, kind="llama3", factor=8.0, original_max_position=8192),
        RopeSpec(dim=64, kind="yarn", factor=4.0, original_max_position=4096),
        RopeSpec(dim=64, frequency_factors=tuple(np.linspace(1, 8, 32).tolist())),
    ],
    ids=["linear", "llama3", "yarn", "factors"],
)
def test_rope_follows_every_kind_of_scaling(native, reference, rope):
    x, positions = cases.floats(4, 128), np.array([0, 5, 4095, 30_000], np.int32)
    actual, expected = (cases.ops_of(backend).rope(x, positions, rope, 64) for backend in (native, reference))
    assert_within("rope", actual, expected)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize(("rows", "width"), [(1, 1536), (3, 1), (7, 83)])
def test_gated_multiplies_by_the_activation(native, reference, activation, rows, width):
    gate, up = 4 * cases.floats(rows, width), cases.floats(rows, width, seed=1)
    actual, expected = (cases.ops_of(backend).gated(gate, up, activation) for backend in (native, reference))
    assert_within("gated", actual, expected)


def test_gated_keeps_to_the_limits_of_silu(native):
    gate = np.array([[-1e30, -200, -90, 0, 90, 200, np.nan, 1e30]], np.float32)
    result = cases.ops_of(native).gated(gate, np.ones_like(gate), "silu")
    np.testing.assert_array_equal(result[0, [3, 4, 5, 7]], gate[0, [3, 4, 5, 7]])
    assert np.isnan(result[0, 6])
    assert np.all(np.abs(result[0, :3]) < 1e-30)


def test_add_is_exact(native, reference):
    x, y = cases.floats(7, 83), cases.floats(7, 83, seed=1)
    actual, expected = (cases.ops_of(backend).add(x, y) for backend in (native, reference))
    assert_within("add", actual, expected)


ATTENTION = {  # kv_heads, group, head_dim, window (negative: chunk), rows (start, num_tokens)
    "smollm2": (3, 3, 64, None, [(0, 40), (100, 1), (250, 13)]),
    "one query head": (2, 1, 80, None, [(300, 5), (0, 1)]),
    "group of 16": (1, 16, 96, None, [(17, 3), (255, 2)]),
    "group of 5": (2, 5, 128, None, [(511, 4)]),
    "wide heads": (1, 2, 256, None, [(30, 35)]),
    "odd heads": (2, 2, 6, None, [(0, 70)]),
    "window": (2, 2, 64, 37, [(0, 90), (290, 30)]),
    "window of one": (1, 4, 20, 1, [(15, 5)]),
    "chunk": (2, 2, 64, -40, [(0, 90), (290, 30), (39, 3)]),
    "chunk over segments": (1, 4, 64, -300, [(250, 340), (599, 2)]),
    "chunk of one": (1, 1, 20, -1, [(15, 5)]),
    "window over segments": (1, 1, 64, 300, [(250, 340)]),
}


@pytest.mark.parametrize("dtype", KV_DTYPES)
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_reads_what_the_row_stored_and_nothing_else(native, reference, name, dtype):
    kv_heads, group, head_dim, window, rows = ATTENTION[name]
    spec = KVSpec(2, kv_heads, head_dim, dtype)
    batch = cases.step(rows)
    q = cases.floats(len(batch.positions), kv_heads * group * head_dim, seed=9)
    results = []
    for backend in (native, reference):
        ops, kv = cases.ops_of(backend), backend.make_kv_cache(spec, 256)
        cases.fill(ops, kv, 1, batch)
        results.append(ops.attention(q, kv, 1, batch, head_dim**-0.5, cases.span(window)))
    assert_within(bounds.attention(native.isa, dtype), *results)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("block_size", [32, 64, 128])
def test_attention_takes_larger_blocks(native, reference, block_size, dtype):
    batch = cases.step([(0, 33), (130, 70)], block_size, num_blocks=16)
    q = cases.floats(len(batch.positions), 2 * 64)
    results = []
    for backend in (native, reference):
        ops, kv = cases.ops_of(backend), backend.make_kv_cache(KVSpec(1, 1, 64, dtype, block_size), 16)
        cases.fill(ops, kv, 0, batch)
        results.append(ops.attention(q, kv, 0, batch, 0.125))
    assert_within(bounds.attention(native.isa, dtype), *results)


@pytest.mark.parametrize("dtype", ["f16", "f32", "fp8_e4m3", "int8_per_token_head"])
def test_hard_values_of_k_and_v_are_kept_as_the_definition_says(native, dtype):
    """Vectors with ties, subnormals, zeros, what saturates, infinity and NaN: the bytes of a block of a native cache, of whose tiles K is
    [head_dim][16], V [16][head_dim], and the scales of 16 vectors come last."""
    x = hard_vectors()
    kv = native.make_kv_cache(KVSpec(1, 1, x.shape[1], dtype), 2)
    batch = cases.one_row(cases.step([(0, 16)], num_blocks=2), 0, 0, 16)
    cases.ops_of(native).store_kv(x, x, kv, 0, batch)
    expected = encode(x, dtype)
    values, scales = np.split(expected, [KV_DTYPES[dtype][0] * x.shape[1]], axis=1)
    of_values = values.reshape(*x.shape, -1)
    assert kv.read_block(1) == b"".join(part.tobytes() for part in (of_values.transpose(1, 0, 2), scales, of_values, scales))


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_a_position_that_sees_only_itself_reads_back_what_its_v_was_kept_as(native, dtype):
    """To the bit, but for int8 in tiles: a weight is multiplied by V's scale there, and then rounded to bf16, which knows no subnormals."""
    in_bf16 = (native.isa, dtype) == ("amx", "int8_per_token_head")
    v = hard_vectors()
    if in_bf16:
        v[np.abs(v) > 1e38] /= 2
    kv = native.make_kv_cache(KVSpec(1, 1, v.shape[1], dtype), 2)
    batch = cases.one_row(cases.step([(0, 16)], num_blocks=2), 0, 0, 16)
    ops = cases.ops_of(native)
    ops.store_kv(np.zeros_like(v), v, kv, 0, batch)
    read = ops.attention(np.zeros_like(v), kv, 0, batch, 1.0, cases.span(1))
    rtol, atol = (2.0**-8, 2.0**-118) if in_bf16 else (0, 0)
    np.testing.assert_allclose(read, decode(encode(v, dtype), dtype), rtol, atol)


def hard_vectors():
    """Return 16 vectors of 32."""
    random = np.random.default_rng(3)
    e4m3 = decode(np.arange(127, dtype=np.uint8), "fp8_e4m3")
    ties = (e4m3[:-1] + e4m3[1:]) / 2
    chosen = [*ties[:61], *ties[66:], 447.9, 448, 463.9, 464, 465, 1e6, 3e38]
    rows = [
        np.zeros(32),
        -np.zeros(32),
        *np.split(np.array(chosen), 4),
        random.standard_normal(32) * 2.0**-9,
        random.standard_normal(32) * 1e-42,  # subnormal float32
        np.full(32, 1e-45),
        np.linspace(-127, 127, 32) + 0.5,
        -random.uniform(300, 600, 32),
        np.full(32, 3.4e38),
        np.where(np.arange(32) == 5, np.inf, 1),
        np.where(np.arange(32) == 31, -np.inf, 1),
        np.where(np.arange(32) == 0, np.nan, 1),
        np.full(32, -np.nan),
    ]
    return np.array(rows, np.float32)


def test_a_row_with_nan_leaves_its_batch_mates_alone(native):
    ops, kv = cases.ops_of(native), native.make_kv_cache(KVSpec(1, 1, 64), 256)
    batch = cases.step([(40, 3), (20, 2)])
    cases.fill(ops, kv, 0, batch)
    q = cases.floats(5, 3 * 64)
    clean = ops.attention(q, kv, 0, batch, 0.125)
    q[0] = np.nan
    dirty = ops.attention(q, kv, 0, batch, 0.125)
    assert np.isnan(dirty[0]).all()
    np.testing.assert_array_equal(dirty[1:], clean[1:])


@pytest.mark.parametrize(("rows", "width"), [(1, 384), (3, 7), (5, 32), (67, 131), (2, 1)])
def test_layer_norm_centres_and_scales_each_row(native, reference, rows, width):
    x, weight, bias = cases.floats(rows, width) + 3, cases.floats(width, seed=1), cases.floats(width, seed=2)
    actual, expected = (cases.ops_of(backend).layer_norm(x, weight, bias, 1e-12) for backend in (native, reference))
    assert_within("layer_norm", actual, expected)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "relu", "tanh"])
@pytest.mark.parametrize(("rows", "width"), [(1, 1536), (3, 1), (7, 83)])
def test_activate_gives_each_value_of_the_activation(native, reference, activation, rows, width):
    x = 4 * cases.floats(rows, width)
    actual, expected = (cases.ops_of(backend).activate(x, activation) for backend in (native, reference))
    assert_within("activate", actual, expected)


def test_gelu_is_right_in_its_tails_and_passes_nan_on(native, reference):
    x = np.array([[-1e30, -40, -9, -5, -3, -1e-3, 0, 1e-3, 3, 9, 40, 1e30]], np.float32)
    actual, expected = (cases.ops_of(backend).activate(x, "gelu") for backend in (native, reference))
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
    assert np.isnan(cases.ops_of(native).activate(np.array([[np.nan]], np.float32), "gelu")).all()


WHOLE_ROWS = {  # heads, head_dim, lengths
    "minilm": (12, 32, [16, 1, 200, 7]),
    "wide heads": (2, 128, [40, 33]),
    "odd heads": (3, 6, [5, 18]),
    "one token": (4, 64, [1]),
    "long": (1, 32, [700]),
}


@pytest.mark.parametrize("name", WHOLE_ROWS)
def test_whole_attention_sees_all_of_its_row_and_nothing_else(native, reference, name):
    heads, head_dim, lengths = WHOLE_ROWS[name]
    batch = cases.whole_rows(lengths)
    q, k, v = cases.floats(3, len(batch.positions), heads * head_dim)
    actual, expected = (cases.ops_of(backend).whole_attention(q, k, v, batch, head_dim, head_dim**-0.5) for backend in (native, reference))
    assert_within("whole_attention", actual, expected)


def test_whole_attention_refuses_a_row_that_is_not_whole(native):
    q = cases.floats(3, 64)
    with pytest.raises(ValueError, match="whole"):
        cases.ops_of(native).whole_attention(q, q, q, cases.step([(5, 3)]), 32, 1.0)
