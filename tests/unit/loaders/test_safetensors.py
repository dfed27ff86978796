"""The safetensors container: what is written is read, and what is damaged is refused without harm."""

import json
import random
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_files import safetensors_bytes

from octavo.errors import ModelError
from octavo.loaders.safetensors import INDEX_NAME, read_folder, read_safetensors
from octavo.specs.tensors import Format

TENSORS = {
    "w": ("F32", (2, 3), bytes(range(24))),
    "b": ("BF16", (3,), b"abcdef"),
    "h": ("F16", (1, 1, 1, 2), b"wxyz"),
    "none": ("F32", (0,), b""),
}
FILE = safetensors_bytes(TENSORS)


@pytest.fixture
def read(tmp_path):
    def read_bytes(data: bytes):
        path = tmp_path / "model.safetensors"
        path.write_bytes(data)
        return read_safetensors(path)

    return read_bytes


def raw(header: object, body: bytes = b"", *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def entry(dtype: object = "F32", shape: object = (1,), offsets: object = (0, 4)) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_tensors_come_back_with_their_shape_and_bytes(read):
    tensors = read(FILE)
    assert {name: (t.shape, bytes(t.data)) for name, t in tensors.items()} == {
        name: (shape, data) for name, (_, shape, data) in TENSORS.items()
    }
    assert [tensors[name].format for name in ("w", "b", "h")] == [Format.F32, Format.BF16, Format.F16]
    assert all(t.data.readonly for t in tensors.values())


def test_metadata_is_no_tensor(read):
    assert list(read(raw({"__metadata__": {"format": "pt"}, "t": entry()}, bytes(4)))) == ["t"]


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"1234567", "no safetensors file"),
        (struct.pack("<Q", (1 << 64) - 1) + b"{}", "header length"),
        (raw({}, length=3), "header length"),
        (raw(b"\xff{}"), "no valid JSON"),
        (raw(b"[" * 100_000), "no valid JSON"),
        (raw(b'{"a": 1' + b"0" * 5000 + b"}"), "no valid JSON"),
        (raw(b'{"a": NaN}'), "no valid JSON"),
        (raw([]), "JSON object"),
        (raw(b'{"t": {}, "t": {}}'), "stands twice"),
        (raw({"t": 5}), "data_offsets"),
        (raw({"t": entry(offsets=[0])}), "data_offsets"),
        (raw({"t": entry(offsets=[0, -4])}), "data_offsets"),
        (raw({"t": entry(offsets=[4, 0])}), "data_offsets"),
        (raw({"t": entry(offsets=[0.0, 4.0])}), "data_offsets"),
        (raw({"t": entry(offsets=[False, 4])}), "data_offsets"),
        (raw({"t": entry(offsets=[0, 1 << 63])}), "data_offsets"),
        (raw({"t": entry(offsets=[0, 1 << 62], shape=[1 << 60])}, bytes(4)), "cut short"),
        (raw({"t": entry()}, bytes(3)), "cut short"),
        (raw({"t": entry()}, bytes(5)), "belong to none"),
        (raw({"t": entry(offsets=[1, 5])}, bytes(5)), "begins at byte 1"),
        (raw({"a": entry(), "b": entry(offsets=[2, 6])}, bytes(6)), "begins at byte 2"),
        (raw({"t": entry(shape=[2])}, bytes(4)), "takes 8"),
        (raw({"t": entry(shape=[1 << 62, 1 << 62])}, bytes(4)), "takes"),
        (raw({"t": entry(shape=[-1, -1])}, bytes(4)), "no valid shape"),
        (raw({"t": entry(shape=[1] * 5)}, bytes(4)), "no valid shape"),
        (raw({"t": entry(shape="1")}, bytes(4)), "no valid shape"),
        (raw({"t": entry(dtype="F8_E4M3")}, bytes(4)), "'F8_E4M3'; supported are F32, F16, BF16"),
        (raw({"t": entry(dtype=["F32"])}, bytes(4)), "supported are"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hostile_header_is_refused_by_reason(read, data, part):
    with pytest.raises(ModelError) as caught:
        read(data)
    assert part in caught.value.message


def test_a_file_cut_at_any_byte_is_refused(read):
    for length in range(len(FILE)):
        with pytest.raises(ModelError):
            read(FILE[:length])


def test_a_sample_of_damaged_files_does_no_harm(read):
    rng = random.Random(37)
    for _ in range(400):
        at = rng.randrange(len(FILE))
        new = rng.choice([0, 0xFF, FILE[at] ^ (1 << rng.randrange(8))])
        try:
            read(FILE[:at] + bytes([new]) + FILE[at + 1 :])
        except ModelError:
            continue


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["F32", "BF16", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets"]), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=3), json_values, max_size=3), st.binary(max_size=16))
def test_any_json_as_header_does_no_harm(read, header, body):
    try:
        read(raw(header, body))
    except ModelError:
        return


def write_shards(folder, weight_map=None):
    (folder / "a.safetensors").write_bytes(safetensors_bytes({"x": ("F32", (1,), b"xxxx")}))
    (folder / "b.safetensors").write_bytes(safetensors_bytes({"y": ("F32", (1,), b"yyyy")}))
    index = {"weight_map": weight_map if weight_map is not None else {"x": "a.safetensors", "y": "b.safetensors"}}
    (folder / INDEX_NAME).write_text(json.dumps(index))


def test_shards_are_joined_by_their_index(tmp_path):
    write_shards(tmp_path)
    assert {name: bytes(tensor.data) for name, tensor in read_folder(tmp_path).items()} == {"x": b"xxxx", "y": b"yyyy"}


@pytest.mark.parametrize(
    ("weight_map", "part"),
    [
        ({"x": "../a.safetensors"}, "no plain name"),
        ({"x": "/etc/a.safetensors"}, "no plain name"),
        ({"x": "a.bin"}, "no plain name"),
        ({"x": 3}, "weight_map"),
        ([], "weight_map"),
        ({"x": "c.safetensors"}, "shards are missing: c.safetensors"),
        ({"x": "a.safetensors", "z": "b.safetensors"}, "z (in b.safetensors)"),
        ({"x": "a.safetensors", "y": "a.safetensors"}, "y (in a.safetensors)"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(tmp_path, weight_map, part):
    write_shards(tmp_path, weight_map)
    with pytest.raises(ModelError) as caught:
        read_folder(tmp_path)
    assert part in caught.value.message


def test_several_files_without_an_index_are_refused(tmp_path):
    write_shards(tmp_path)
    (tmp_path / INDEX_NAME).unlink()
    with pytest.raises(ModelError, match="2 safetensors files and no"):
        read_folder(tmp_path)
