"""Latent attention (MLA): its three verbs on every ISA of this CPU against `reference`, and the promise that a row's bits depend on
that row alone. Outputs and KV slots that no row owns hold NaN before, so what is not written or read by mistake is seen."""

import bounds
import cases
import numpy as np
import pytest
from msgspec.structs import replace

from octavo.backends.native import _native
from octavo.backends.native.backend import NativeBackend
from octavo.backends.native.ops import arrays_of
from octavo.backends.native.tensors import kv_shape
from octavo.backends.reference.kv_values import decode, decode_latents, encode, encode_latents
from octavo.backends.registry import open_backend
from octavo.errors import ConfigError
from octavo.specs.kv import FP8_DS_MLA, KV_DTYPES, KVSpec
from octavo.specs.tensors import Format

DTYPES = [dtype for dtype in KV_DTYPES if dtype != "int8_per_token_head"]

LATENTS = {  # heads, latent, rotary, rows (start, num_tokens)
    "deepseek-v2-lite": (16, 512, 64, [(0, 20), (100, 1), (250, 13)]),
    "deepseek-v3": (128, 512, 64, [(254, 3), (17, 1)]),
    "one head": (1, 48, 8, [(0, 70), (300, 5)]),
    "more heads than a call takes": (97, 16, 2, [(40, 2)]),
    "two calls of three heads": (6, 16, 6, [(511, 40)]),
    "groups of 128": (3, 256, 10, [(0, 40), (290, 3)]),
    "no whole line": (5, 34, 4, [(30, 35)]),
}


def spec(latent, rotary, dtype="f16", block_size=16):
    return KVSpec(2, 1, latent, dtype, block_size, rotary_dim=rotary)


def queries(count, heads, latent, rotary, seed=9):
    return cases.floats(count, heads * latent, seed=seed), cases.floats(count, heads * rotary, seed=seed + 1)


def fill(ops, kv, layer, batch, seed=0):
    """Poison the whole layer with NaN, then write the latents of every position of the batch's rows."""
    latent, rotary, block_size = kv.spec.head_dim, kv.spec.rotary_dim, kv.spec.block_size
    slots = np.arange(kv.num_blocks * block_size, dtype=np.int64)
    nan = np.full((len(slots), latent + rotary), np.nan, np.float32)
    everywhere = cases.one_row(batch, 0, 0, 1, block_size)
    everywhere = replace(everywhere, slot_mapping=slots)
    ops.store_latent(nan[:, :latent].copy(), nan[:, latent:].copy(), kv, layer, everywhere)
    for row, length in enumerate(batch.context_len.tolist()):
        own = cases.one_row(batch, row, 0, length, block_size)
        ops.store_latent(cases.floats(length, latent, seed=seed + row), cases.floats(length, rotary, seed=seed + row + 100), kv, layer, own)


CASES = [(name, dtype) for name in LATENTS for dtype in DTYPES] + [(name, FP8_DS_MLA) for name in ("deepseek-v2-lite", "groups of 128")]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_every_head_reads_the_latents_that_the_row_stored_and_nothing_else(native, reference, name, dtype):
    heads, latent, rotary, rows = LATENTS[name]
    batch = cases.step(rows)
    q, q_rotary = queries(len(batch.positions), heads, latent, rotary)
    results = []
    for backend in (native, reference):
        ops, kv = cases.ops_of(backend), backend.make_kv_cache(spec(latent, rotary, dtype), 256)
        fill(ops, kv, 1, batch)
        results.append(ops.latent_attention(q, q_rotary, kv, 1, batch, (latent + rotary) ** -0.5))
    actual, expected = results
    assert np.abs(actual - expected).max() <= bounds.ELEMENTWISE[bounds.attention(native.isa, dtype)] * np.abs(expected).max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [32, 128])
def test_latents_lie_in_larger_blocks_too(native, reference, block_size, dtype):
    batch = cases.step([(0, 33), (130, 70)], block_size, num_blocks=16)
    q, q_rotary = queries(103, 3, 32, 6)
    results = []
    for backend in (native, reference):
        ops, kv = cases.ops_of(backend), backend.make_kv_cache(spec(32, 6, dtype, block_size), 16)
        fill(ops, kv, 0, batch)
        results.append(ops.latent_attention(q, q_rotary, kv, 0, batch, 0.2))
    assert np.abs(results[0] - results[1]).max() <= bounds.ELEMENTWISE[bounds.attention(native.isa, dtype)] * np.abs(results[1]).max()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_position_that_sees_only_itself_reads_back_what_its_latent_was_kept_as(native, dtype):
    batch = cases.step([(0, 1)] * 3)
    latent = 300 * cases.floats(3, 34)
    kv = native.make_kv_cache(spec(34, 4, dtype), 256)
    ops = cases.ops_of(native)
    ops.store_latent(latent, cases.floats(3, 4), kv, 0, batch)
    read = ops.latent_attention(*queries(3, 2, 34, 4), kv, 0, batch, 1.0)
    np.testing.assert_array_equal(read, np.tile(decode(encode(latent, dtype), dtype), 2))


SHAPES = [*((3, 34, 6, dtype) for dtype in DTYPES), (16, 64, 8, "f16"), (100, 32, 4, "bf16"), (3, 128, 6, FP8_DS_MLA)]


@pytest.mark.parametrize(("heads", "latent", "rotary", "dtype"), SHAPES)
def test_a_position_has_the_same_bits_in_every_chunk_and_beside_others(native, heads, latent, rotary, dtype):
    ops, kv = cases.ops_of(native), native.make_kv_cache(spec(latent, rotary, dtype), 256)
    whole = cases.step([(0, 300), (0, 31)])
    fill(ops, kv, 0, whole)
    q, q_rotary = queries(331, heads, latent, rotary)
    expected = ops.latent_attention(q, q_rotary, kv, 0, whole, 0.125)
    for size in (1, 7, 64, 201):
        parts = [
            ops.latent_attention(q[start : start + count].copy(), q_rotary[start : start + count].copy(), kv, 0, part, 0.125)
            for start in range(0, 300, size)
            for count in [min(size, 300 - start)]
            for part in [cases.one_row(whole, 0, start, count)]
        ]
        np.testing.assert_array_equal(np.concatenate(parts), expected[:300], err_msg=f"chunks of {size}")


@pytest.mark.parametrize("threads", [2, 5])
def test_a_long_context_that_is_split_over_threads_gives_the_same_bits(isa, threads):
    batch = cases.step([(1800, 2)], num_blocks=160)
    q, q_rotary = queries(2, 100, 64, 8)
    results = []
    for count in (1, threads):
        backend = NativeBackend(count, isa)
        ops, kv = cases.ops_of(backend), backend.make_kv_cache(spec(64, 8), 160)
        fill(ops, kv, 0, batch)
        results.append(ops.latent_attention(q, q_rotary, kv, 0, batch, 0.125))
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize(("rows", "heads", "n", "k"), [(1, 4, 16, 256), (19, 3, 48, 256), (7, 1, 32, 512)])
def test_each_head_meets_its_own_rows_of_the_matrix(native, reference, format, rows, heads, n, k):
    raw, x = cases.raw_matrix(format, heads * n, k), cases.floats(rows, heads * k, seed=1)
    actual, expected = (cases.ops_of(backend).head_linear(x, backend.load_matrix(raw), heads) for backend in (native, reference))
    weight = reference.load_matrix(raw).values.reshape(heads, n, k)
    size = np.linalg.norm(x.reshape(rows, heads, 1, k), axis=-1) * np.linalg.norm(weight, axis=-1)
    bound = bounds.LINEAR["quantised" if format.block_values > 1 else format.label]
    assert np.all(np.abs(actual - expected) <= bound * size.reshape(rows, heads * n))


@pytest.mark.parametrize("format", Format)
def test_a_row_of_head_linear_is_the_same_among_any_number_of_rows(native, format):
    ops, weight, x = cases.ops_of(native), native.load_matrix(cases.raw_matrix(format, 3 * 32, 256)), cases.floats(70, 3 * 256, seed=1)
    expected = ops.head_linear(x, weight, 3)
    for count in (1, 3, 8, 31):
        parts = [ops.head_linear(x[start : start + count].copy(), weight, 3) for start in range(0, 70, count)]
        np.testing.assert_array_equal(np.concatenate(parts), expected, err_msg=f"{count} rows")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["native", "reference"])
def test_a_block_of_latents_can_be_taken_out_and_put_back(name, dtype):
    kv = open_backend(name, threads=1).make_kv_cache(spec(48, 6, dtype, 32), 4)
    assert kv.spec.bytes_per_block == 2 * 32 * (48 + 6) * KV_DTYPES[dtype][0]
    data = np.random.default_rng(1).bytes(kv.spec.bytes_per_block)
    kv.write_block(2, data)
    assert kv.read_block(2) == data
    assert not any(kv.read_block(1) + kv.read_block(3))


def test_hard_values_of_a_latent_are_kept_in_groups_as_the_definition_says(native):
    """Zeros, subnormals, ties, infinity and NaN: a block, of whose tiles each part is [number][16 positions], bf16 in pairs."""
    latent, rotary = cases.floats(16, 256), 300 * cases.floats(16, 6, seed=1)
    latent[0] = 0
    latent[1, :128] *= 1e-42
    latent[2] = np.linspace(-448, 448, 256)
    latent[3] = np.tile(np.arange(128) + 0.5, 2)
    latent[4, 7], latent[5, 200], latent[6, 0] = np.inf, np.nan, -3e38
    kv = native.make_kv_cache(KVSpec(1, 1, 256, FP8_DS_MLA, rotary_dim=6), 2)
    cases.ops_of(native).store_latent(latent, rotary, kv, 0, cases.one_row(cases.step([(0, 16)], num_blocks=2), 0, 0, 16))
    kept = encode_latents(np.concatenate([latent, rotary], axis=1), 256, FP8_DS_MLA)
    values, scales, keys = np.split(kept, [256, 264], axis=1)
    parts = (values.T, scales.reshape(16, 2, 4).transpose(1, 0, 2), keys.reshape(16, 3, 4).transpose(1, 0, 2))
    assert kv.read_block(1) == b"".join(part.tobytes() for part in parts)
    read = decode_latents(kept, 256, FP8_DS_MLA)
    assert np.isnan(read[4, :128]).all() and np.isnan(read[5, 128:256]).all()
    finite = np.delete(np.arange(16), [4, 5])
    largest = np.abs(latent[finite].reshape(14, 2, 128)).max(axis=-1).repeat(128).reshape(14, 256)
    assert np.all(np.abs(read[finite, :256] - latent[finite]) <= largest / 28 + 1e-45)  # half a step of the topmost 32 of 448


def test_the_layout_of_latents_is_refused_where_it_does_not_fit():
    with pytest.raises(ConfigError, match="this model has none"):
        KVSpec(1, 1, 128, FP8_DS_MLA)
    with pytest.raises(ConfigError, match="groups of 128; this model's has 96"):
        KVSpec(1, 1, 96, FP8_DS_MLA, rotary_dim=4)
    bad = _native.KVShape(FP8_DS_MLA, 1, 1, 96, 4, 16, 2)
    with pytest.raises(ValueError, match="multiple of 128"):
        _native.KVMemory(bad)


def test_one_scale_for_a_latent_and_its_rotary_key_is_refused_with_a_way_out():
    with pytest.raises(ConfigError, match=r"int8_per_token_head.*latent attention \(MLA\).*Take auto"):
        spec(48, 6, "int8_per_token_head")


@pytest.mark.parametrize(
    "bad",
    [KVSpec(1, 2, 32, rotary_dim=4), KVSpec(1, 1, 32, rotary_dim=3), KVSpec(1, 1, 32, rotary_dim=130), KVSpec(1, 1, 514, rotary_dim=4)],
    ids=repr,
)
def test_latents_of_a_bad_shape_are_refused(bad):
    with pytest.raises(ValueError):
        _native.KVMemory(kv_shape(bad, 2))


def test_shapes_that_do_not_fit_are_refused():
    backend = NativeBackend(1)
    device, batch = backend._device, cases.step([(0, 2)])
    latents, plain = (_native.KVMemory(kv_shape(kv_spec, 256)) for kv_spec in (spec(32, 4), KVSpec(2, 1, 32)))
    q, q_rotary, slots = *queries(2, 3, 32, 4), batch.slot_mapping
    weight = backend.load_matrix(cases.raw_matrix(Format.F32, 48, 8)).matrix
    x, out = cases.floats(2, 3 * 8), np.empty((2, 48), np.float32)
    device.head_linear(weight, x, 3, out)
    device.store_kv(latents, 0, q[:, :32].copy(), q_rotary[:, :4].copy(), slots)

    def attend(kv, rotary):
        device.attention(kv, 0, q, rotary, 1.0, None, None, *arrays_of(batch), np.empty_like(q))

    attend(latents, q_rotary)
    for bad in (
        lambda: attend(latents, None),
        lambda: attend(plain, q_rotary),
        lambda: attend(latents, q_rotary[:, :8].copy()),
        lambda: attend(latents, q_rotary[:1].copy()),
        lambda: device.store_kv(latents, 0, q[:, :32].copy(), q[:, :32].copy(), slots),
        lambda: device.head_linear(weight, x, 6, out),
        lambda: device.head_linear(weight, x, 0, out),
        lambda: device.head_linear(weight, x[:, :8].copy(), 3, out),
    ):
        with pytest.raises(ValueError):
            bad()
