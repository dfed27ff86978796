"""What the bytes of each `Format` mean: `dequantize` turns a RawTensor into float32.

Block layouts are GGUF's (ggml-common.h, ggml-quants.c): a block is one C struct, here a NumPy structured dtype of the same
fields. Scales are multiplied in float32 in the order of that definition, so results agree with it bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.specs.tensors import Format, RawTensor

FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]

_BLOCKS: dict[Format, np.dtype[Any]] = {
    Format.Q4_0: np.dtype([("scale", "<f2"), ("low", "u1", 16)]),
    Format.Q4_1: np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("low", "u1", 16)]),
    Format.Q5_0: np.dtype([("scale", "<f2"), ("high", "<u4"), ("low", "u1", 16)]),
    Format.Q5_1: np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("high", "<u4"), ("low", "u1", 16)]),
    Format.Q8_0: np.dtype([("scale", "<f2"), ("quants", "i1", 32)]),
    Format.Q4_K: np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("scales", "u1", 12), ("low", "u1", (4, 32))]),
    Format.Q5_K: np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("scales", "u1", 12), ("high", "u1", 32), ("low", "u1", (4, 32))]),
    Format.Q6_K: np.dtype([("low", "u1", (2, 64)), ("high", "u1", (2, 32)), ("scales", "i1", 16), ("scale", "<f2")]),
}


def dequantize(raw: RawTensor) -> FloatArray:
    """Return the values of `raw`, float32 of its shape; a copy."""
    match raw.format:
        case Format.F32:
            values = np.frombuffer(raw.data, "<f4").astype(np.float32)
        case Format.F16:
            values = np.frombuffer(raw.data, "<f2").astype(np.float32)
        case Format.BF16:
            values = from_bfloat16(np.frombuffer(raw.data, "<u2"))
        case Format.Q4_K | Format.Q5_K:
            values = _k_with_minima(np.frombuffer(raw.data, _BLOCKS[raw.format]))
        case Format.Q6_K:
            values = _q6_k(np.frombuffer(raw.data, _BLOCKS[raw.format]))
        case _:
            values = _simple(raw.format, np.frombuffer(raw.data, _BLOCKS[raw.format]))
    return values.reshape(raw.shape)


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> FloatArray:
    """Return bfloat16 values, given as their bits, in float32: exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(x: FloatArray) -> npt.NDArray[np.uint16]:
    """Return the bits of `x` rounded to bfloat16, to nearest, ties to even; NaN stays NaN."""
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16)


def _simple(format: Format, block: npt.NDArray[Any]) -> FloatArray:
    """Blocks of 32 values: quants of 4, 5 or 8 bits, one scale, and a minimum where the format has one."""
    if format is Format.Q8_0:
        quants = block["quants"].astype(np.float32)
    else:
        bits: npt.NDArray[Any] = _nibbles(block["low"])
        if "high" in (block.dtype.names or ()):
            bits = bits | (block["high"][:, None] >> np.arange(32, dtype=np.uint32) & 1) << 4
        zero = {Format.Q4_0: 8, Format.Q5_0: 16}.get(format, 0)
        quants = bits.astype(np.float32) - np.float32(zero)
    values: FloatArray = block["scale"].astype(np.float32)[:, None] * quants
    if "minimum" in (block.dtype.names or ()):
        values += block["minimum"].astype(np.float32)[:, None]
    return values


def _k_with_minima(block: npt.NDArray[Any]) -> FloatArray:
    """Super-blocks of 8 x 32 values, each 32 with a 6-bit scale and a 6-bit minimum, both scaled once more."""
    scales, minima = _six_bit_pairs(block["scales"])
    bits: npt.NDArray[Any] = _nibbles(block["low"]).reshape(-1, 8, 32)
    if "high" in (block.dtype.names or ()):
        bits = bits | (block["high"][:, None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1) << 4
    scale = block["scale"].astype(np.float32)[:, None] * scales.astype(np.float32)
    minimum = block["minimum"].astype(np.float32)[:, None] * minima.astype(np.float32)
    return scale[..., None] * bits.astype(np.float32) - minimum[..., None]


def _six_bit_pairs(packed: ByteArray) -> tuple[ByteArray, ByteArray]:
    """Return the 8 scales and the 8 minima of each super-block [B, 12]: bytes 0-3 and 4-7 hold the first four of each in
    their low 6 bits; the last four have their low nibbles in bytes 8-11 and their top 2 bits on top of bytes 0-7."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate((first & 63, (third & 15) | (first >> 6) << 4), axis=1)
    minima = np.concatenate((second & 63, (third >> 4) | (second >> 6) << 4), axis=1)
    return scales, minima


def _q6_k(block: npt.NDArray[Any]) -> FloatArray:
    """Super-blocks of 16 x 16 values of 6 bits around 32; each half has 128 values as 4 runs of 32, which take the low
    nibbles of 64 bytes, then the high ones, and 2 bits each of the same 32 bytes."""
    low = _nibbles(block["low"]).reshape(-1, 2, 4, 32)
    high = block["high"][:, :, None, :] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    quants = (low | high << 4).astype(np.float32) - np.float32(32)
    scale = block["scale"].astype(np.float32)[:, None] * block["scales"].astype(np.float32)
    return scale[..., None] * quants.reshape(-1, 16, 16)


def _nibbles(packed: ByteArray) -> ByteArray:
    """Return the low nibbles of the last axis, then the high ones: [..., 2 * n]."""
    return np.concatenate((packed & 15, packed >> 4), axis=-1)
