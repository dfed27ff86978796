"""Tensors as a model file holds them: bytes (a memoryview of its mmap), and how numbers lie in them."""

from __future__ import annotations

import enum

from msgspec import Struct

from octavo.errors import ModelError


class Format(enum.Enum):
    """How a tensor's numbers lie in memory: (values per block, bytes per block).

    Block formats are those of GGUF (ggml-common.h gives the layouts): a row of K values is K / block blocks.
    """

    F32 = ("f32", 1, 4)
    F16 = ("f16", 1, 2)
    BF16 = ("bf16", 1, 2)
    Q4_0 = ("q4_0", 32, 18)
    Q4_1 = ("q4_1", 32, 20)
    Q5_0 = ("q5_0", 32, 22)
    Q5_1 = ("q5_1", 32, 24)
    Q8_0 = ("q8_0", 32, 34)
    Q4_K = ("q4_k", 256, 144)
    Q5_K = ("q5_k", 256, 176)
    Q6_K = ("q6_k", 256, 210)

    def __init__(self, label: str, block_values: int, block_bytes: int) -> None:
        self.label = label
        self.block_values = block_values
        self.block_bytes = block_bytes

    def num_bytes(self, num_values: int) -> int:
        """Return the bytes that `num_values` values take; raises ModelError when they fill no whole block."""
        if num_values % self.block_values:
            raise ModelError(f"{num_values:,} values are no multiple of the {self.label} block of {self.block_values}")
        return num_values // self.block_values * self.block_bytes


class RawTensor(Struct, frozen=True):
    """One tensor of a model file. `shape` is (out_features, in_features) for matrices, row-major; `data` is read-only."""

    name: str
    shape: tuple[int, ...]
    format: Format
    data: memoryview

    def __repr__(self) -> str:
        return f"RawTensor({self.name!r}, {self.shape}, {self.format.label})"
