"""What the native backend keeps: packed matrices and KV memory. Both live in C++; these give them their shapes and types."""

from __future__ import annotations

import msgspec
import numpy as np

from octavo.backends.native import _native
from octavo.ops.interface import KVCache, Weight
from octavo.specs.kv import KVSpec
from octavo.specs.model import ExpertsSpec
from octavo.specs.tensors import Format


class NativeWeight(msgspec.Struct, frozen=True):
    """A matrix [out_features, in_features] in panels; see csrc/include/octavo/packed.h. `format` is the file's."""

    matrix: _native.Matrix
    format: Format

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    @property
    def num_bytes(self) -> int:
        return self.matrix.num_bytes


class NativeKVCache:
    """K and V, or latents, of all blocks in tiles of 16 positions (csrc/include/octavo/kv_cache.h). Memory is backed when first written."""

    def __init__(self, spec: KVSpec, num_blocks: int) -> None:
        self.spec = spec
        self.num_blocks = num_blocks
        self.memory = _native.KVMemory(kv_shape(spec, num_blocks))

    def read_block(self, block_id: int) -> bytes:
        data = np.empty(self.spec.bytes_per_block, np.uint8)
        self.memory.read_block(block_id, data)
        return data.tobytes()

    def write_block(self, block_id: int, data: bytes) -> None:
        self.memory.write_block(block_id, np.frombuffer(data, np.uint8))


def kv_shape(spec: KVSpec, num_blocks: int) -> _native.KVShape:
    """Return the spec as C++ takes it."""
    return _native.KVShape(spec.dtype, spec.num_layers, spec.num_kv_heads, spec.head_dim, spec.rotary_dim, spec.block_size, num_blocks)


def routing_of(experts: ExpertsSpec) -> _native.Routing:
    """Return as C++ takes it how experts are chosen."""
    return _native.Routing(
        experts.count,
        experts.per_token,
        experts.scoring == "sigmoid",
        experts.num_groups,
        experts.groups_kept,
        experts.group_worth == "two_best",
        experts.normalize,
        experts.scaling,
    )


def experts_of(gate: Weight, up: Weight, down: Weight, experts: ExpertsSpec, activation: str) -> _native.Experts:
    """Return the matrices of a layer's experts as C++ takes them: views, nothing is copied."""
    return _native.Experts(matrix_of(gate), matrix_of(up), matrix_of(down), experts.count, experts.per_token, activation)


def matrix_of(weight: Weight) -> _native.Matrix:
    """Return what C++ holds of a weight of this backend. Raises TypeError for another's."""
    if not isinstance(weight, NativeWeight):
        raise TypeError(f"the native backend was given a weight of {type(weight).__name__}")
    return weight.matrix


def memory_of(kv: KVCache) -> _native.KVMemory:
    """Return what C++ holds of KV memory of this backend. Raises TypeError for another's."""
    if not isinstance(kv, NativeKVCache):
        raise TypeError(f"the native backend was given KV memory of {type(kv).__name__}")
    return kv.memory
