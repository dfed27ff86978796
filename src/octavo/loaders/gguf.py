"""GGUF files, versions 2 and 3: metadata and tensors, read in place with every number checked before it is used.

Knows the container, not its meaning (gguf_model.py). Trusts nothing: a count, length or offset is compared with the
bytes that remain and with a cap before anything is allocated or read. Invariants of what is returned: tensors lie in
file order, aligned, disjoint and inside the file, and their bytes are exactly those of their shape and format; numeric
arrays and tensors are windows of the mapped file. Python's integers do not overflow.

Source: ggml's docs/gguf.md. Values are little-endian, as this code's hosts are.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from octavo.errors import ModelError
from octavo.loaders.mapped_file import map_file
from octavo.specs.tensors import Format, RawTensor
from octavo.units import MiB

MAX_HEADER_BYTES = 64 * MiB  # metadata and tensor table
MAX_STRING_BYTES = 16 * MiB
MAX_ARRAY_ENTRIES = 16 << 20
MAX_NESTING = 2
MAX_INNER_ARRAYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_METADATA_KEYS = 1 << 16
MAX_DIMS = 4
MAX_PARTS = 1 << 10

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

# Metadata value types: struct codes of the numbers, then the two others.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_SMALLEST_BYTES = {code: struct.calcsize(letter) for code, letter in _NUMBERS.items()} | {_STRING: 8, _ARRAY: 12}

_FORMATS = {
    0: Format.F32,
    1: Format.F16,
    2: Format.Q4_0,
    3: Format.Q4_1,
    6: Format.Q5_0,
    7: Format.Q5_1,
    8: Format.Q8_0,
    12: Format.Q4_K,
    13: Format.Q5_K,
    14: Format.Q6_K,
    30: Format.BF16,
}
_UNSUPPORTED = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip

_SPLIT_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


@dataclass(frozen=True)
class StringArray:
    """Strings, each behind its 8-byte length, still undecoded. `ends`: where each ends in `data`."""

    name: str
    data: memoryview
    ends: list[int]

    def __len__(self) -> int:
        return len(self.ends)

    def decode(self) -> tuple[str, ...]:
        """Return the strings. Raises ModelError when one is not UTF-8."""
        data, begin = bytes(self.data), 8
        strings: list[str] = []
        try:
            for end in self.ends:
                strings.append(data[begin:end].decode())
                begin = end + 8
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.name}[{len(strings)}] is not UTF-8") from error
        return tuple(strings)

    def pick(self, wanted: Iterable[int]) -> dict[int, str]:
        """Return the strings at the indices `wanted` alone, in their order; no UTF-8: U+FFFD."""
        begins = {index: 8 + (self.ends[index - 1] if index else 0) for index in sorted(wanted)}
        return {index: str(self.data[begin : self.ends[index]], "utf-8", "replace") for index, begin in begins.items()}


# Numeric arrays are memoryviews cast to their type; arrays of arrays are tuples.
Value = int | float | bool | str | StringArray | memoryview | tuple["Value", ...]


@dataclass(frozen=True)
class GGUFFile:
    """Metadata by key and tensors by the file's names, of one file or of all parts of a split one."""

    name: str
    metadata: dict[str, Value]
    tensors: dict[str, RawTensor]


def read_gguf(path: Path) -> GGUFFile:
    """Return the file at `path`; any part of a split file stands for the whole. Raises ModelError."""
    first = _read_part(path)
    count = first.metadata.get("split.count", 0)
    if not isinstance(count, int) or not 0 <= count <= MAX_PARTS:
        raise ModelError(f"{path.name}: split.count is {count!r}; it must lie in 0..{MAX_PARTS:,}")
    if count <= 1:
        return first
    return _join_parts(path, count)


def _join_parts(path: Path, count: int) -> GGUFFile:
    match = _SPLIT_NAME.fullmatch(path.name)
    if match is None or int(match[3]) != count:
        raise ModelError(f"{path.name}: is one of {count} parts; each must keep its name, as in model-00001-of-{count:05d}.gguf")
    names = [f"{match[1]}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]
    missing = [name for name in names if not (path.parent / name).exists()]
    if missing:
        raise ModelError(f"{path.name}: is one of {count} parts and these are missing beside it: {', '.join(missing)}")
    metadata: dict[str, Value] = {}
    tensors: dict[str, RawTensor] = {}
    for number, name in enumerate(names):
        part = _read_part(path.parent / name)
        if part.metadata.get("split.no") != number or part.metadata.get("split.count") != count:
            raise ModelError(f"{name}: says that it is part {part.metadata.get('split.no')!r} of {part.metadata.get('split.count')!r}")
        twice = tensors.keys() & part.tensors.keys()
        if twice:
            raise ModelError(f"{name}: holds tensors of an earlier part again: {', '.join(sorted(twice)[:5])}")
        metadata = metadata or part.metadata  # the first part carries the model's metadata
        tensors |= part.tensors
    total = metadata.get("split.tensors.count", len(tensors))
    if total != len(tensors):
        raise ModelError(f"{names[0]}: announces {total!r} tensors, but the {count} parts hold {len(tensors):,}")
    return GGUFFile(names[0], metadata, tensors)


def _read_part(path: Path) -> GGUFFile:
    data = map_file(path)
    reader = _Reader(path.name, data)
    magic = reader.take(4, "magic")
    if bytes(magic) != b"GGUF":
        raise ModelError(f"{path.name}: is no GGUF file (it begins with {bytes(magic)!r})")
    version = reader.u32("version")
    if version not in (2, 3):
        why = "a big-endian file" if version in (2 << 24, 3 << 24) else f"version {version}"
        raise ModelError(f"{path.name}: is {why}; GGUF versions 2 and 3, little-endian, are read")
    tensor_count = reader.count("tensor count", MAX_TENSORS, smallest=32)
    key_count = reader.count("metadata count", MAX_METADATA_KEYS, smallest=13)
    metadata: dict[str, Value] = {}
    for _ in range(key_count):
        key = reader.string("metadata key")
        if key in metadata:
            reader.fail(f"metadata key {key[:64]!r} stands twice")
        metadata[key] = reader.value(key[:64])
    return GGUFFile(path.name, metadata, _read_tensors(reader, data, tensor_count, _alignment(metadata, path.name)))


def _alignment(metadata: dict[str, Value], file: str) -> int:
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 8 <= alignment <= 4096 or alignment & (alignment - 1):
        raise ModelError(f"{file}: general.alignment is {alignment!r}; it must be a power of two in 8..4096")
    return alignment


@dataclass(frozen=True)
class _TensorInfo:
    name: str
    shape: tuple[int, ...]
    format: Format
    offset: int


def _read_tensors(reader: _Reader, data: memoryview, count: int, alignment: int) -> dict[str, RawTensor]:
    infos = [_read_info(reader) for _ in range(count)]
    data_start = -(-reader.position // alignment) * alignment
    available = len(data) - data_start
    tensors: dict[str, RawTensor] = {}
    end = 0
    for info in infos:
        if info.name in tensors:
            reader.fail(f"tensor {info.name!r} stands twice")
        if info.offset % alignment:
            reader.fail(f"tensor {info.name!r} lies at offset {info.offset:,}, no multiple of the alignment {alignment}")
        if info.offset < end:
            reader.fail(f"tensor {info.name!r} lies at offset {info.offset:,}, before the end of the tensor ahead of it ({end:,})")
        size = math.prod(info.shape) // info.format.block_values * info.format.block_bytes
        end = info.offset + size
        if end > available:
            reader.fail(f"tensor {info.name!r} ends at byte {data_start + end:,} of {len(data):,}: the file is cut short or damaged")
        tensors[info.name] = RawTensor(info.name, info.shape, info.format, data[data_start + info.offset : data_start + end])
    return tensors


def _read_info(reader: _Reader) -> _TensorInfo:
    name = reader.string("tensor name")
    shown = name[:64]
    num_dims = reader.u32(f"dimensions of {shown!r}")
    if not 1 <= num_dims <= MAX_DIMS:
        reader.fail(f"tensor {shown!r} has {num_dims:,} dimensions; 1 to {MAX_DIMS} are read")
    dims = [reader.u64(f"shape of {shown!r}") for _ in range(num_dims)]
    if 0 in dims:
        reader.fail(f"tensor {shown!r} has a dimension of 0")
    code = reader.u32(f"type of {shown!r}")
    if code not in _FORMATS:
        supported = ", ".join(known.name for known in _FORMATS.values())
        reader.fail(f"tensor {shown!r} has type {_UNSUPPORTED.get(code, code)}; supported are {supported}")
    tensor_format = _FORMATS[code]
    if dims[0] % tensor_format.block_values:
        reader.fail(
            f"tensor {shown!r}: rows of {dims[0]:,} are no multiple of the {tensor_format.name} block of {tensor_format.block_values}"
        )
    # GGUF names the fastest-moving dimension first; ours is the last.
    return _TensorInfo(name, tuple(reversed(dims)), tensor_format, reader.u64(f"offset of {shown!r}"))


class _Reader:
    """A position in the header, and the checks of everything that is read there."""

    def __init__(self, file: str, data: memoryview) -> None:
        self.file = file
        self.data = data
        self.position = 0
        self.end = min(len(data), MAX_HEADER_BYTES)

    def fail(self, problem: str) -> NoReturn:
        raise ModelError(f"{self.file}: {problem}")

    def take(self, num_bytes: int, what: str) -> memoryview:
        start, stop = self.position, self.position + num_bytes
        if stop > self.end:
            limit = "the header's limit" if self.end == MAX_HEADER_BYTES else "the end of the file"
            self.fail(f"{what[:64]} at byte {start:,} takes {num_bytes:,} bytes and crosses {limit}, byte {self.end:,}")
        self.position = stop
        return self.data[start:stop]

    def u32(self, what: str) -> int:
        value: int = _U32.unpack(self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        value: int = _U64.unpack(self.take(8, what))[0]
        return value

    def count(self, what: str, limit: int, smallest: int) -> int:
        """Return a u64 number of entries of at least `smallest` bytes each: at most `limit`, and they fit."""
        value = self.u64(what)
        if value > limit:
            self.fail(f"{what} is {value:,}; at most {limit:,} are read")
        if value * smallest > self.end - self.position:
            self.fail(f"{what} is {value:,}, more than the remaining {self.end - self.position:,} bytes can hold")
        return value

    def string(self, what: str) -> str:
        data = self.take(self.count(f"length of {what}", MAX_STRING_BYTES, smallest=1), what)
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.file}: {what} is not UTF-8") from error

    def value(self, key: str) -> Value:
        code = self.u32(f"type of {key}")
        if code == _STRING:
            return self.string(key)
        if code == _ARRAY:
            return self.array(key, depth=1)
        letter = self.letter(code, key)
        number: int | float | bool = struct.unpack(f"<{letter}", self.take(struct.calcsize(letter), key))[0]
        if code == _BOOL and self.data[self.position - 1] > 1:
            self.fail(f"{key} is a bool of value {self.data[self.position - 1]}")
        return number

    def letter(self, code: int, key: str) -> str:
        if code not in _NUMBERS:
            self.fail(f"{key} has the unknown value type {code}")
        return _NUMBERS[code]

    def array(self, key: str, depth: int) -> Value:
        if depth > MAX_NESTING:
            self.fail(f"{key} nests arrays deeper than {MAX_NESTING}")
        code = self.u32(f"type of {key}")
        limit = MAX_INNER_ARRAYS if code == _ARRAY else MAX_ARRAY_ENTRIES
        count = self.count(f"length of {key}", limit, _SMALLEST_BYTES.get(code, 1))
        if code == _STRING:
            return self.strings(key, count)
        if code == _ARRAY:
            return tuple(self.array(key, depth + 1) for _ in range(count))
        letter = self.letter(code, key)
        data = self.take(count * _SMALLEST_BYTES[code], key)
        if code == _BOOL and count and max(data) > 1:
            self.fail(f"{key} holds a bool of value {max(data)}")
        numbers: memoryview = data.cast(letter)  # type: ignore[call-overload]  # the stubs want a literal
        return numbers

    def strings(self, key: str, count: int) -> StringArray:
        data, end, start = self.data, self.end, self.position
        position = start
        length_at = _U64.unpack_from
        ends: list[int] = []
        note_end = ends.append
        for index in range(count):  # the one hot loop of the reader: some 100,000 turns a model
            if position + 8 > end:
                self.fail(f"{key}[{index}] begins at byte {position:,}, behind the last readable one, {end:,}")
            length = length_at(data, position)[0]
            if length > MAX_STRING_BYTES:
                self.fail(f"{key}[{index}] is {length:,} bytes long; at most {MAX_STRING_BYTES:,} are read")
            position += 8 + length
            note_end(position - start)
        if position > end:
            self.fail(f"{key} ends at byte {position:,}, behind the last readable one, {end:,}")
        self.position = position
        return StringArray(f"{self.file}: {key}", data[start:position], ends)
