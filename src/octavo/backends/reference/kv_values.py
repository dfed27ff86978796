"""How a vector of K or V is kept in each KV dtype: the definition. Knows vectors, not slots or blocks.

    f16, bf16, f32        every value rounded to nearest, ties to even
    fp8_e4m3              OCP E4M3 without a scale: 448 from there on, also for infinity
    int8_per_token_head   multiples -127..127 of the vector's scale, its largest magnitude / 127; NaN throughout if any value is not finite

A kept vector is KVSpec.vector_bytes bytes: its values, then its float32 scale where it has one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.backends.reference.dequantize import from_bfloat16, to_bfloat16

FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]


def encode(x: FloatArray, dtype: str) -> ByteArray:
    """Return the vectors x [..., head_dim] as they are kept: [..., bytes]."""
    match dtype:
        case "bf16":
            return _bytes(to_bfloat16(x))
        case "fp8_e4m3":
            return _to_e4m3(x)
        case "int8_per_token_head":
            return _to_int8(x)
        case _:
            with np.errstate(over="ignore"):  # to infinity
                return _bytes(x.astype(_PLAIN[dtype]))


def decode(data: ByteArray, dtype: str) -> FloatArray:
    """Return the vectors that are kept in data [..., bytes]: [..., head_dim]."""
    match dtype:
        case "bf16":
            return from_bfloat16(data.view(np.uint16))
        case "fp8_e4m3":
            return _E4M3[data]
        case "int8_per_token_head":
            scale = np.ascontiguousarray(data[..., -4:]).view(np.float32)
            return data[..., :-4].view(np.int8).astype(np.float32) * scale
        case _:
            return data.view(_PLAIN[dtype]).astype(np.float32)


_PLAIN = {"f16": np.float16, "f32": np.float32}


def _bytes(values: npt.NDArray[Any]) -> ByteArray:
    return np.ascontiguousarray(values).view(np.uint8)


def _to_int8(x: FloatArray) -> ByteArray:
    finite = np.isfinite(x).all(axis=-1, keepdims=True)
    scale = np.where(finite, np.abs(np.where(finite, x, 0)).max(axis=-1, keepdims=True) / np.float32(127), np.float32(np.nan))
    quants = np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)
    return np.concatenate([_bytes(np.rint(np.clip(quants, -127, 127)).astype(np.int8)), _bytes(scale.astype(np.float32))], axis=-1)


def _e4m3_values() -> FloatArray:
    """Return the value of each of the 256 codes."""
    magnitude = np.arange(128)
    exponent, mantissa = magnitude >> 3, magnitude & 7
    values = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    values[127] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


_E4M3 = _e4m3_values()


def _to_e4m3(x: FloatArray) -> ByteArray:
    magnitude = np.minimum(np.abs(x), np.float32(448))
    exponent = np.where(magnitude >= 2.0**-6, np.frexp(magnitude)[1] - 1, -6)  # the last place of 3 bits of mantissa is 2^(exponent - 3)
    steps = np.rint(np.ldexp(magnitude, 3 - exponent))  # ties to even; 16 steps are the next exponent's 8
    code = np.where(np.isnan(x), 127, steps + 8.0 * (exponent + 6)).astype(np.uint8)
    return code | np.where(np.signbit(x), np.uint8(128), np.uint8(0))
