"""The GGUF container: what is written is read, and what is damaged is refused without harm."""

import itertools
import os
import random
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_files import (
    ARRAY,
    BOOL,
    F32,
    F64,
    GGML_F16,
    GGML_F32,
    GGML_Q2_K,
    GGML_Q4_0,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U32,
    U64,
    encode_numbers,
    encode_string,
    gguf_bytes,
    tiny_gguf,
)

from octavo.errors import ModelError
from octavo.loaders.gguf import StringArray, read_gguf
from octavo.loaders.load import open_weights, read_generation_defaults, read_spec, read_text
from octavo.specs.tensors import Format
from octavo.units import MiB


@pytest.fixture
def read(tmp_path):
    def read_bytes(data: bytes):
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return read_gguf(path)

    return read_bytes


def refused(read, data: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        read(data)
    return caught.value.message


@pytest.mark.parametrize("version", [2, 3])
def test_every_kind_of_value_comes_back(read, version):
    numbers = {"u8": (U8, 255), "i16": (I16, -7), "u32": (U32, 1 << 31), "i32": (I32, -1), "u64": (U64, 1 << 63), "i64": (I64, -(1 << 62))}
    floats = {"f32": (F32, 0.5), "f64": (F64, 0.1)}
    file = read(gguf_bytes({**numbers, **floats, "yes": True, "text": "héé", "words": ["a", "", "日本"]}, {}, version=version))
    assert {name: file.metadata[name] for name in numbers} == {name: value for name, (_, value) in numbers.items()}
    assert file.metadata["f32"] == 0.5 and file.metadata["f64"] == 0.1
    assert file.metadata["yes"] is True and file.metadata["text"] == "héé"
    assert file.metadata["words"].decode() == ("a", "", "日本")


def test_number_arrays_come_back_at_any_byte_address(read):
    metadata = {"odd": "x", "ids": encode_numbers(I32, [1, -2, 3]), "y": "yy", "scores": encode_numbers(F32, [0.5, -1.5])}
    file = read(gguf_bytes(metadata, {}))
    assert list(file.metadata["ids"]) == [1, -2, 3]
    assert list(file.metadata["scores"]) == [0.5, -1.5]


def test_arrays_nest_twice_and_no_deeper(read):
    inner = struct.pack("<IQ", U8, 2) + b"\1\2"
    file = read(gguf_bytes({"a": (ARRAY, (ARRAY, inner * 2, 2))}, {}))
    assert [list(part) for part in file.metadata["a"]] == [[1, 2], [1, 2]]
    deeper = struct.pack("<IQ", ARRAY, 1) + inner
    assert "nests arrays deeper than 2" in refused(read, gguf_bytes({"a": (ARRAY, (ARRAY, deeper, 1))}, {}))


def test_tensors_come_back_with_reversed_shape_and_their_own_bytes(read):
    data = {"m": ((3, 64), GGML_Q4_0, bytes(range(108))), "v": ((5,), GGML_F32, b"\7" * 20), "h": ((2, 3), GGML_F16, b"\1" * 12)}
    file = read(gguf_bytes({}, data))
    assert [(t.name, t.shape, t.format) for t in file.tensors.values()] == [
        ("m", (3, 64), Format.Q4_0),
        ("v", (5,), Format.F32),
        ("h", (2, 3), Format.F16),
    ]
    assert {name: bytes(t.data) for name, t in file.tensors.items()} == {name: raw for name, (_, _, raw) in data.items()}
    assert all(t.data.readonly for t in file.tensors.values())


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_the_files_own_alignment_is_used(read, alignment):
    tensors = {"a": ((1,), GGML_F32, b"aaaa"), "b": ((1,), GGML_F32, b"bbbb")}
    file = read(gguf_bytes({"general.alignment": alignment}, tensors, alignment=alignment))
    assert bytes(file.tensors["b"].data) == b"bbbb"


@pytest.mark.parametrize("alignment", [0, 4, 24, 8192])
def test_an_odd_alignment_is_refused(read, alignment):
    assert "general.alignment" in refused(read, gguf_bytes({"general.alignment": alignment}, {}))


def test_an_unsupported_type_is_named_with_the_tensor_and_the_supported_ones(read):
    message = refused(read, gguf_bytes({}, {"blk.0.attn_q.weight": ((1, 256), GGML_Q2_K, bytes(84))}))
    for part in ("blk.0.attn_q.weight", "Q2_K", "Q4_K", "BF16"):
        assert part in message


def header(tensor_count: int, key_count: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensor_count, key_count) + rest + bytes(64)


def info(name: str, dims: list[int], code: int = GGML_F32, offset: int = 0) -> bytes:
    return encode_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, code, offset)


HUGE = (1 << 64) - 1


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "is empty"),
        (b"GG", "magic"),
        (b"PK\3\4" + bytes(60), "no GGUF file"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (header(HUGE, 0), "tensor count"),
        (header(0, HUGE), "metadata count"),
        (header(60_000, 0), "more than the remaining"),
        (header(0, 1, struct.pack("<Q", HUGE)), "length of metadata key"),
        (header(0, 1, encode_string("k") + struct.pack("<IQ", STRING, 17 * MiB)), "length of k"),
        (header(0, 1, encode_string("k") + struct.pack("<IIQ", ARRAY, U8, HUGE)), "length of k"),
        (header(0, 1, encode_string("k") + struct.pack("<IIQ", ARRAY, STRING, 1 << 24)), "more than the remaining"),
        (header(0, 1, encode_string("k") + struct.pack("<IIQQ", ARRAY, STRING, 1, HUGE)), "at most"),
        (header(0, 1, encode_string("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1 << 20)), "at most 65,536"),
        (header(0, 1, encode_string("k") + struct.pack("<IIQQ", ARRAY, STRING, 1, 1 << 20)), "behind the last"),
        (header(0, 1, encode_string("k") + struct.pack("<I", 13)), "unknown value type 13"),
        (header(0, 1, encode_string("k") + struct.pack("<IB", BOOL, 2)), "bool of value 2"),
        (header(0, 1, encode_string(b"\xff\xfe") + bytes(8)), "not UTF-8"),
        (header(0, 2, (encode_string("k") + struct.pack("<IB", U8, 1)) * 2), "stands twice"),
        (header(2, 0, info("t", [1]) + info("t", [1], offset=32)), "stands twice"),
        (header(1, 0, info("t", [1, 1, 1, 1, 1])), "5 dimensions"),
        (header(1, 0, encode_string("t") + struct.pack("<I", 0) + bytes(40)), "0 dimensions"),
        (header(1, 0, info("t", [0])), "dimension of 0"),
        (header(1, 0, info("t", [1 << 62, 1 << 62, 1 << 62, 4])), "cut short or damaged"),
        (header(1, 0, info("t", [1 << 32, 1 << 32])), "cut short or damaged"),
        (header(1, 0, info("t", [1], offset=HUGE - 31)), "cut short or damaged"),
        (header(1, 0, info("t", [1], offset=4)), "multiple of the alignment"),
        (header(2, 0, info("s", [9]) + info("t", [1])), "before the end of the tensor"),
        (header(1, 0, info("t", [33], code=GGML_Q4_0)), "block of 32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hostile_header_is_refused_by_reason(read, data, part):
    assert part in refused(read, data)


def test_text_that_is_not_utf8_is_told_with_its_place(read):
    file = read(gguf_bytes({"words": ["a", b"\xff"]}, {}))
    with pytest.raises(ModelError, match=r"words\[1\] is not UTF-8"):
        file.metadata["words"].decode()


def test_picking_some_strings_gives_those_of_decoding_all(read):
    words = read(gguf_bytes({"words": ["a", "", "ccc", "d"]}, {})).metadata["words"]
    assert words.pick({0, 2}) == {0: "a", 2: "ccc"}
    assert words.pick(set()) == {}


def test_a_folder_a_pipe_and_nothing_are_refused(tmp_path):
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe, tmp_path / "absent.gguf"):
        with pytest.raises(ModelError):
            read_gguf(path)


def write_parts(folder: Path, count: int = 3, **changes: object) -> list[Path]:
    paths = []
    for number in range(count):
        metadata = {"split.no": (4, number), "split.count": count, "split.tensors.count": (I32, count)} | changes
        if number == 0:
            metadata |= {"general.name": "whole"}
        path = folder / f"m-{number + 1:05d}-of-{count:05d}.gguf"
        path.write_bytes(gguf_bytes(metadata, {f"t{number}": ((1,), GGML_F32, bytes([number] * 4))}))
        paths.append(path)
    return paths


@pytest.mark.parametrize("given_part", [0, 1, 2])
def test_any_part_of_a_split_file_stands_for_the_whole(tmp_path, given_part):
    file = read_gguf(write_parts(tmp_path)[given_part])
    assert {name: bytes(tensor.data)[0] for name, tensor in file.tensors.items()} == {"t0": 0, "t1": 1, "t2": 2}
    assert file.metadata["general.name"] == "whole"


def test_a_missing_part_is_named(tmp_path):
    first, second, _ = write_parts(tmp_path)
    second.unlink()
    with pytest.raises(ModelError, match=r"m-00002-of-00003.gguf"):
        read_gguf(first)


def test_parts_that_do_not_belong_together_are_refused(tmp_path):
    first, second, third = write_parts(tmp_path)
    second.write_bytes(third.read_bytes())
    with pytest.raises(ModelError, match="says that it is part 2"):
        read_gguf(first)


def test_a_wrong_total_of_tensors_over_the_parts_is_refused(tmp_path):
    first = write_parts(tmp_path, **{"split.tensors.count": 7})[0]
    with pytest.raises(ModelError, match="announces 7 tensors, but the 3 parts hold 3"):
        read_gguf(first)


_NUMBERS = itertools.count()


def read_all(folder: Path, data: bytes) -> None:
    """Open `data`, as a file of a new name each time, through every door; only ModelError may come out."""
    path = folder / f"{next(_NUMBERS)}.gguf"
    path.write_bytes(data)
    for door in (read_spec, read_text, read_generation_defaults, open_weights):
        try:
            door(path)
        except ModelError:
            continue
    path.unlink()


def assert_harmless(folder: Path, data: bytes) -> None:
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    read_all(folder, data)
    assert tracemalloc.get_traced_memory()[1] - before < 4 * MiB


@pytest.fixture
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


MODEL = tiny_gguf()
HEADER_BYTES = MODEL.index(b"blk.1.ffn_down.weight") + 64


def test_the_sample_of_this_file_opens_through_every_door(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(MODEL)
    assert read_spec(path).num_layers == 2
    assert len(open_weights(path).tensors) == 20
    assert isinstance(read_gguf(path).metadata["tokenizer.ggml.tokens"], StringArray)


def test_a_header_cut_at_any_byte_is_refused(tmp_path, traced):
    path = tmp_path / "m.gguf"
    for length in range(0, HEADER_BYTES, 11):
        path.write_bytes(MODEL[:length])
        with pytest.raises(ModelError):
            read_gguf(path)


def damaged(rng: random.Random) -> bytes:
    at = rng.randrange(HEADER_BYTES)
    new = rng.choice([0, 0xFF, (MODEL[at] + 1) & 0xFF, MODEL[at] ^ (1 << rng.randrange(8))])
    return MODEL[:at] + bytes([new]) + MODEL[at + 1 :]


def test_a_sample_of_damaged_headers_does_no_harm(tmp_path, traced):
    rng = random.Random(37)
    for _ in range(200):
        assert_harmless(tmp_path, damaged(rng))


@pytest.mark.slow
def test_a_header_cut_or_damaged_at_every_byte_does_no_harm(tmp_path, traced):
    for at in range(HEADER_BYTES):
        assert_harmless(tmp_path, MODEL[:at])
        for new in (0, 0xFF, (MODEL[at] + 1) & 0xFF):
            assert_harmless(tmp_path, MODEL[:at] + bytes([new]) + MODEL[at + 1 :])


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, HEADER_BYTES), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4))
def test_overwriting_any_bytes_of_a_header_does_no_harm(tmp_path, edits):
    data = bytearray(MODEL)
    for at, new in edits:
        data[at : at + len(new)] = new
    read_all(tmp_path, bytes(data))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 4), st.integers(0, 4), st.binary(max_size=200))
def test_any_bytes_behind_a_valid_start_do_no_harm(tmp_path, tensors, keys, rest):
    read_all(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + rest)
