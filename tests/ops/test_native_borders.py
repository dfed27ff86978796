"""What the C++ library refuses: arguments that would read or write out of bounds are exceptions, never undefined behaviour."""

import cases
import numpy as np
import pytest
import tiny
from msgspec.structs import replace

from octavo.backends.native import _native
from octavo.backends.native import backend as native_backend
from octavo.backends.native.backend import NativeBackend
from octavo.backends.native.ops import arrays_of
from octavo.backends.native.tensors import kv_shape
from octavo.backends.registry import open_backend
from octavo.errors import ConfigError, ModelError
from octavo.models.registry import bind
from octavo.specs.kv import KV_DTYPES, KVSpec
from octavo.specs.tensors import Format, RawTensor

SPEC = tiny.CASES["llama"].kv_spec()


@pytest.fixture(scope="module")
def backend():
    return NativeBackend(threads=2)


@pytest.fixture(scope="module")
def device(backend):
    return backend._device


@pytest.fixture(scope="module")
def forward(backend):
    model = bind(tiny.CASES["llama"], tiny.tensors(tiny.CASES["llama"]), backend)
    return backend.compile(model, backend.make_kv_cache(SPEC, 8), max_tokens=32, max_rows=4)


def good():
    return replace(cases.step([(0, 20), (3, 2)], num_blocks=8), sample_rows=np.array([19, 21], np.int32))


BAD_BATCHES = {
    "token id": ("token_ids", 4, 61),
    "negative token id": ("token_ids", 4, -1),
    "block id": ("block_table", (0, 1), 8),
    "negative block id": ("block_table", (1, 0), -1),
    "slot": ("slot_mapping", 2, 128),
    "negative slot": ("slot_mapping", 2, -1),
    "sample row": ("sample_rows", 1, 22),
    "positions not consecutive": ("positions", 5, 9),
    "negative position": ("positions", 0, -1),
    "context too long for the table": ("context_len", 0, 10_000),
    "context not at the last position": ("context_len", 1, 4),
    "query_start not from 0": ("query_start", 0, 1),
    "query_start falling": ("query_start", 1, 22),
    "query_start beyond the tokens": ("query_start", 1, 30),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_a_bad_batch_is_refused_by_the_program_and_by_attention(device, forward, name):
    field, place, value = BAD_BATCHES[name]
    array = getattr(good(), field).copy()
    array[place] = value
    batch = replace(good(), **{field: array})
    with pytest.raises(ValueError):
        forward(batch)
    if field != "token_ids":
        kv = _native.KVMemory(kv_shape(SPEC, 8))
        q = np.zeros((22, 32), np.float32)
        with pytest.raises(ValueError):
            device.attention(kv, 0, q, None, 1.0, None, None, *arrays_of(batch), np.empty_like(q))


def test_the_good_batch_is_taken(forward):
    assert np.isfinite(forward(good())).all()


def test_a_step_with_other_layer_groups_than_the_programs_is_refused(forward):
    batch = cases.step([(0, 22)], num_blocks=8, num_groups=2)
    with pytest.raises(ValueError, match="layer group"):
        forward(replace(batch, sample_rows=np.zeros(1, np.int32)))


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_a_block_can_be_taken_out_and_put_back_whole_and_only_so(backend, dtype):
    kv = backend.make_kv_cache(KVSpec(2, 3, 20, dtype, 32), 4)
    data = np.random.default_rng(1).bytes(kv.spec.bytes_per_block)
    kv.write_block(2, data)
    assert kv.read_block(2) == data
    assert not any(kv.read_block(1) + kv.read_block(3))
    for block_id, wrong in ((4, data), (-1, data), (2, data[:-1]), (2, data + b"x")):
        with pytest.raises((ValueError, TypeError)):
            kv.write_block(block_id, wrong)
    with pytest.raises(ValueError, match="no such block"):
        kv.read_block(4)


def test_a_step_larger_than_the_program_is_refused(forward):
    with pytest.raises(ValueError, match="more tokens or samples"):
        forward(replace(cases.step([(0, 33)], num_blocks=8), sample_rows=np.zeros(1, np.int32)))
    with pytest.raises(ValueError, match="more tokens or samples"):
        forward(replace(good(), sample_rows=np.zeros(5, np.int32)))


def test_nothing_is_converted_silently(device):
    x = np.zeros((2, 4), np.float32)
    for other in (x.astype(np.float64), np.zeros((4, 2), np.float32).T, x[0]):
        with pytest.raises(TypeError):
            device.add(other, x, np.empty_like(x))
    read_only = np.zeros((2, 4), np.float32)
    read_only.flags.writeable = False
    with pytest.raises(TypeError):
        device.add(x, x, read_only)


def test_shapes_that_do_not_fit_are_refused(device, backend):
    weight = backend.load_matrix(cases.raw_matrix(Format.F32, 3, 4)).matrix
    x, out = np.zeros((2, 4), np.float32), np.empty((2, 3), np.float32)
    device.linear(weight, x, None, out)
    for bad in (
        lambda: device.linear(weight, np.zeros((2, 5), np.float32), None, out),
        lambda: device.linear(weight, x, np.zeros(4, np.float32), out),
        lambda: device.linear(weight, x, None, np.empty((1, 3), np.float32)),
        lambda: device.rms_norm(x, np.zeros(3, np.float32), 1e-5, np.empty_like(x)),
        lambda: device.rms_norm(x, np.zeros(0, np.float32), 1e-5, np.empty_like(x)),
        lambda: device.rope(x, np.zeros(2, np.int32), np.zeros(3), 1.0, False, 4, np.empty_like(x)),
        lambda: device.rope(x, np.zeros(1, np.int32), np.zeros(2), 1.0, False, 4, np.empty_like(x)),
        lambda: device.gated(x, np.zeros((2, 3), np.float32), "silu", np.empty_like(x)),
        lambda: device.gated(x, x, "swish", np.empty_like(x)),
        lambda: device.embed(weight, np.array([3], np.int32), np.empty((1, 4), np.float32)),
        lambda: device.embed(weight, np.array([-1], np.int32), np.empty((1, 4), np.float32)),
    ):
        with pytest.raises(ValueError):
            bad()


@pytest.mark.parametrize(
    "spec",
    [KVSpec(-1, 1, 64), KVSpec(1, 0, 64), KVSpec(1, 1, 63), KVSpec(1, 1, 514), KVSpec(1, 1, 64, "bf16", 24), KVSpec(1, 1, 64, "int8")],
    ids=repr,
)
def test_kv_memory_of_a_bad_shape_is_refused(spec):
    with pytest.raises(ValueError):
        _native.KVMemory(kv_shape(spec, 8))


def test_kv_memory_costs_nothing_until_it_is_written(backend):
    backend.make_kv_cache(KVSpec(32, 8, 128), 100_000)  # 195 GiB


def test_a_matrix_whose_bytes_do_not_fit_is_a_model_error(backend):
    whole = cases.raw_matrix(Format.Q4_0, 4, 64)
    with pytest.raises(ModelError, match="tensor w"):
        backend.load_matrix(RawTensor("w", (4, 64), Format.Q4_0, whole.data[:-1]))
    with pytest.raises(ModelError, match="tensor w"):
        backend.load_matrix(RawTensor("w", (4, 65), Format.Q4_0, whole.data))


def test_vectors_of_every_float_format_become_float32(backend, reference):
    for format in (Format.F32, Format.F16, Format.BF16):
        matrix = cases.raw_matrix(format, 1, 33)
        raw = RawTensor("v", (33,), format, matrix.data)
        np.testing.assert_array_equal(backend.load_vector(raw), reference.load_vector(raw))


def test_a_program_with_operations_that_do_not_fit_is_refused(device, backend):
    kv = _native.KVMemory(kv_shape(SPEC, 2))
    weight = backend.load_matrix(cases.raw_matrix(Format.F32, 61, 32)).matrix

    def build(emit):
        builder = _native.ProgramBuilder()
        x = builder.tensor("T", 4 * 32)
        builder.embed(x, "tokens", weight)
        return builder.build(device, kv, emit(builder, x), 8, 8)

    def take(builder, x):
        out = builder.tensor("S", 4 * 32)
        builder.take_rows(out, x)
        return out

    def unwritten(builder, x):
        out = builder.tensor("S", 4 * 32)
        builder.add(out, builder.tensor("S", 4 * 32), take(builder, x))
        return out

    def unknown(builder, x):
        builder.take_rows(builder.tensor("S", 4 * 32), 99)
        return 0

    def wrong_layer(builder, x):
        builder.store_kv(x, x, 0, 7)
        return take(builder, x)

    def twice(builder, x):
        builder.embed(x, "tokens", weight)
        return take(builder, x)

    assert build(take).num_bytes > 0
    for bad in (unwritten, unknown, wrong_layer, twice, lambda builder, x: x, lambda builder, x: 99):
        with pytest.raises(ValueError):
            build(bad)


def test_an_unknown_isa_or_backend_is_a_config_error():
    with pytest.raises(ConfigError, match="this CPU has portable"):
        open_backend("native", isa="sse9")
    with pytest.raises(ConfigError, match="choose native or reference"):
        open_backend("cuda")
    assert open_backend("native", threads=3, isa="portable").describe() == "native: portable, 3 threads"


def test_a_program_that_was_measured_is_not_made_again_to_be_compiled(monkeypatch):
    made = []
    lower = native_backend.lower
    monkeypatch.setattr(native_backend, "lower", lambda program, spec: made.append(spec) or lower(program, spec))
    backend = NativeBackend(threads=1)
    model = bind(tiny.CASES["llama"], tiny.tensors(tiny.CASES["llama"]), backend)
    backend.activation_bytes(model, SPEC, 32, 4)
    backend.compile(model, backend.make_kv_cache(SPEC, 8), max_tokens=32, max_rows=4)
    assert made == [SPEC]
    other = tiny.CASES["llama"].kv_spec("f32")
    backend.activation_bytes(model, SPEC, 32, 4)
    backend.activation_bytes(model, other, 32, 4)
    assert made == [SPEC, SPEC, other]
