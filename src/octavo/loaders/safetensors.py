"""Safetensors files and sharded folders: tensors read in place with every number checked before it is used.

Knows the container, not the model (hf_model.py). Invariants of what is returned: the tensors of a file tile its data
section without gap or overlap, and each one's bytes are exactly those of its shape and format. Nothing is copied; data
may lie at any byte address, since the format aligns none. Tensors of integers, which some models keep as buffers, are left out.

Source: the format section of safetensors' README. Layout: u64 header length, JSON header, data.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, TypeGuard

from octavo.errors import ModelError
from octavo.loaders.mapped_file import map_file, read_small_file
from octavo.loaders.pickled import refuse_pickled
from octavo.specs.tensors import Format, RawTensor
from octavo.units import MiB

MAX_HEADER_BYTES = 100_000_000
MAX_INDEX_BYTES = 64 * MiB
MAX_DIMS = 4
MAX_SHARDS = 1 << 12

INDEX_NAME = "model.safetensors.index.json"
_FORMATS = {"F32": Format.F32, "F16": Format.F16, "BF16": Format.BF16}
_BUFFERS = ("I64", "I32")  # position ids and the like: nothing to compute with
_SHARD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\.safetensors")


def read_folder(folder: Path) -> dict[str, RawTensor]:
    """Return the tensors of a folder by the files' names: its shards if it has an index, else its one file. Raises ModelError."""
    if (folder / INDEX_NAME).exists():
        return _read_shards(folder)
    files = sorted(folder.glob("*.safetensors"))
    if len(files) == 1:
        return read_safetensors(files[0])
    if files:
        raise ModelError(f"{folder.name}: holds {len(files)} safetensors files and no {INDEX_NAME} that says how they belong together")
    refuse_pickled(folder)
    raise ModelError(f"{folder.name}: holds no .safetensors and no .gguf file")


def read_safetensors(path: Path) -> dict[str, RawTensor]:
    """Return the tensors of one file by name, in the order of their bytes. Raises ModelError."""
    data = map_file(path)
    if len(data) < 8:
        raise ModelError(f"{path.name}: is no safetensors file ({len(data)} bytes)")
    length = int.from_bytes(data[:8], "little")
    if length > min(MAX_HEADER_BYTES, len(data) - 8):
        raise ModelError(
            f"{path.name}: header length is {length:,}; {len(data) - 8:,} bytes follow and at most {MAX_HEADER_BYTES:,} are read"
        )
    header = parse_json(bytes(data[8 : 8 + length]), path.name)
    header.pop("__metadata__", None)
    return _read_tensors(path.name, header, data[8 + length :])


def parse_json(data: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object `data`; keys that stand twice, NaN and infinities are refused. Raises ModelError."""
    value = _parse_strictly(data, name)
    if not isinstance(value, dict):
        raise ModelError(f"{name}: must hold a JSON object")
    return value


def parse_json_objects(data: bytes, name: str) -> list[dict[str, Any]]:
    """Return the JSON list of objects `data`, as strictly read as parse_json does. Raises ModelError."""
    value = _parse_strictly(data, name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ModelError(f"{name}: must hold a list of JSON objects")
    return value


def _parse_strictly(data: bytes, name: str) -> Any:
    try:
        return json.loads(data, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{name}: is no valid JSON: {error}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return result


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


def _read_tensors(file: str, header: dict[str, Any], data: memoryview) -> dict[str, RawTensor]:
    placed = sorted((*_offsets(file, name, entry), name) for name, entry in header.items())
    tensors: dict[str, RawTensor] = {}
    end = 0
    for start, stop, name in placed:
        if start != end:
            raise ModelError(f"{file}: tensor {name[:64]!r} begins at byte {start:,} of the data, but the one before it ends at {end:,}")
        if stop > len(data):
            raise ModelError(f"{file}: tensor {name[:64]!r} ends at byte {stop:,} of {len(data):,}: the file is cut short or damaged")
        end = stop
        if header[name].get("dtype") not in _BUFFERS:
            tensors[name] = _tensor(file, name, header[name], data[start:stop])
    if end != len(data):
        raise ModelError(f"{file}: {len(data) - end:,} bytes after the last tensor belong to none")
    return tensors


def _offsets(file: str, name: str, entry: object) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not _is_list_of_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelError(f"{file}: tensor {name[:64]!r} has no valid data_offsets [begin, end]")
    return offsets[0], offsets[1]


def _tensor(file: str, name: str, entry: dict[str, Any], data: memoryview) -> RawTensor:
    dtype, shape = entry.get("dtype"), entry.get("shape")
    if not isinstance(dtype, str) or dtype not in _FORMATS:
        raise ModelError(f"{file}: tensor {name[:64]!r} has type {str(dtype)[:16]!r}; supported are {', '.join(_FORMATS)}")
    if not _is_list_of_sizes(shape) or len(shape) > MAX_DIMS:
        raise ModelError(f"{file}: tensor {name[:64]!r} has no valid shape of at most {MAX_DIMS} dimensions")
    size = _FORMATS[dtype].num_bytes(math.prod(shape))
    if size != len(data):
        raise ModelError(f"{file}: tensor {name[:64]!r} has {len(data):,} bytes, but {tuple(shape)} of {dtype} takes {size:,}")
    return RawTensor(name, tuple(shape), _FORMATS[dtype], data)


def _is_list_of_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 1 << 63 for size in value)


def _read_shards(folder: Path) -> dict[str, RawTensor]:
    weight_map = parse_json(read_small_file(folder / INDEX_NAME, MAX_INDEX_BYTES), INDEX_NAME).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise ModelError(f"{INDEX_NAME}: weight_map must give a file name for each tensor")
    files = sorted(set(weight_map.values()))
    if bad := [file for file in files if not _SHARD_NAME.fullmatch(file)]:
        raise ModelError(f"{INDEX_NAME}: {bad[0][:80]!r} is no plain name of a .safetensors file")
    if len(files) > MAX_SHARDS:
        raise ModelError(f"{INDEX_NAME}: names {len(files):,} shards; at most {MAX_SHARDS:,} are read")
    missing = [file for file in files if not (folder / file).exists()]
    if missing:
        raise ModelError(f"{folder.name}: shards are missing: {', '.join(missing)}")
    shards = {file: read_safetensors(folder / file) for file in files}
    absent = [f"{name} (in {file})" for name, file in weight_map.items() if name not in shards[file]]
    unlisted = [f"{name} (in {file})" for file, tensors in shards.items() for name in tensors if weight_map.get(name) != file]
    if absent or unlisted:
        raise ModelError(f"{INDEX_NAME} and the shards differ. Not in its shard: {absent}. Not in the index: {unlisted}")
    return {name: tensor for tensors in shards.values() for name, tensor in tensors.items()}
