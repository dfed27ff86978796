"""How a vector of K or V is kept in each KV dtype: the definition. Knows vectors, not slots or blocks.

    f16, bf16, f32        every value rounded to nearest, ties to even
    fp8_e4m3              OCP E4M3 without a scale: 448 from there on, also for infinity
    int8_per_token_head   multiples -127..127 of the vector's scale, its largest magnitude / 127; NaN throughout if any value is not finite

    fp8_ds_mla            of latents alone: each group of 128 numbers as E4M3 multiples of a float32 scale, its largest magnitude / 448
                          (NaN throughout if any number is not finite), the rotary key in bf16

A kept vector is KVSpec.vector_bytes bytes: its values, then its float32 scale where it has one; of fp8_ds_mla the latent's values,
its scales, then the rotary key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.backends.reference.dequantize import from_bfloat16, to_bfloat16
from octavo.specs.kv import FP8_DS_MLA, LATENT_GROUP

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


def encode_latents(x: FloatArray, rank: int, dtype: str) -> ByteArray:
    """Return latents of `rank` numbers with their rotary keys behind them, x [..., rank + rotary], as they are kept: [..., bytes]."""
    if dtype != FP8_DS_MLA:
        return encode(x, dtype)
    groups = x[..., :rank].reshape(*x.shape[:-1], -1, LATENT_GROUP)
    scale = _scale(groups, 448)
    quants = np.divide(groups, scale, out=np.zeros_like(groups), where=scale > 0)
    values = _to_e4m3(quants).reshape(*x.shape[:-1], rank)
    return np.concatenate([values, _bytes(scale[..., 0]), _bytes(to_bfloat16(np.ascontiguousarray(x[..., rank:])))], axis=-1)


def decode_latents(data: ByteArray, rank: int, dtype: str) -> FloatArray:
    """Return the latents and rotary keys that are kept in data [..., bytes]: [..., rank + rotary]."""
    if dtype != FP8_DS_MLA:
        return decode(data, dtype)
    values, scale, rotary = np.split(data, [rank, rank + rank // LATENT_GROUP * 4], axis=-1)
    scales = np.repeat(np.ascontiguousarray(scale).view(np.float32), LATENT_GROUP, axis=-1)
    return np.concatenate([_E4M3[values] * scales, from_bfloat16(np.ascontiguousarray(rotary).view(np.uint16))], axis=-1)


_PLAIN = {"f16": np.float16, "f32": np.float32}


def _bytes(values: npt.NDArray[Any]) -> ByteArray:
    return np.ascontiguousarray(values).view(np.uint8)


def _scale(x: FloatArray, largest: int) -> FloatArray:
    """Return what makes `largest` of the largest magnitude of each vector of x: [..., 1]; NaN where not all is finite."""
    finite = np.isfinite(x).all(axis=-1, keepdims=True)
    return np.where(finite, np.abs(np.where(finite, x, 0)).max(axis=-1, keepdims=True) / np.float32(largest), np.float32(np.nan))


def _to_int8(x: FloatArray) -> ByteArray:
    scale = _scale(x, 127)
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
