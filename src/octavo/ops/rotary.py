"""The angles of rotary position embedding: frequencies of every RopeSpec kind, and tables of cos and sin.

Position p turns pair i by p * frequency[i]; cos and sin are scaled by the attention factor. In float64, so that every
backend that rounds these tables starts from the same numbers.

Sources: RoFormer (Su 2021) section 3.4; YaRN (Peng 2023) sections 3.2 to 3.4 and its released configurations; the scaling
that Llama 3.1's reference code applies.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelError
from octavo.specs.model import RopeSpec

FloatArray = npt.NDArray[np.float64]


def rope_frequencies(rope: RopeSpec) -> FloatArray:
    """Return the angle per position of each pair: [dim / 2] float64, in radians. Raises ModelError for an unknown kind."""
    frequency: FloatArray = rope.theta ** (-np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim)
    match rope.kind:
        case "none":
            pass
        case "linear":
            frequency = frequency / rope.factor
        case "llama3":
            frequency = _llama3(frequency, rope)
        case "yarn":
            frequency = _yarn(frequency, rope)
        case _:
            raise ModelError(f"rotary embedding of kind {rope.kind!r} is not supported; known kinds: none, linear, llama3, yarn")
    if rope.frequency_factors:
        if len(rope.frequency_factors) != rope.dim // 2:
            raise ModelError(f"{len(rope.frequency_factors)} rope frequency factors for {rope.dim // 2} pairs of dimensions")
        frequency = frequency / np.array(rope.frequency_factors, np.float64)
    return frequency


def attention_factor(rope: RopeSpec) -> float:
    """Return what cos and sin are multiplied by: 1 but for YaRN, whose default is 0.1 ln(factor) + 1."""
    if rope.kind != "yarn":
        return 1.0
    return yarn_mscale(rope.factor) if rope.attention_factor is None else rope.attention_factor


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """Return 0.1 * mscale * ln(factor) + 1, or 1 where nothing is stretched. A config that names both `mscale` and
    `mscale_all_dim` has the quotient of their two values as its attention factor."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def cos_sin(rope: RopeSpec, positions: npt.NDArray[np.int32]) -> tuple[FloatArray, FloatArray]:
    """Return cos and sin for these positions [T], attention factor applied: [T, dim / 2] float64 each."""
    angles = positions[:, None].astype(np.float64) * rope_frequencies(rope)
    scale = attention_factor(rope)
    return np.cos(angles) * scale, np.sin(angles) * scale


def _llama3(frequency: FloatArray, rope: RopeSpec) -> FloatArray:
    """Long waves are divided by the factor, short ones kept, those between blended."""
    turns = rope.original_max_position * frequency / (2 * math.pi)  # within the context of training
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    kept = np.clip(blend, 0.0, 1.0)
    return frequency * (kept + (1 - kept) / rope.factor)


def _yarn(frequency: FloatArray, rope: RopeSpec) -> FloatArray:
    """Pairs that turn more than beta_fast times in the context of training are kept, fewer than beta_slow divided."""

    def pair_that_turns(times: float) -> float:
        return rope.dim * math.log(rope.original_max_position / (times * 2 * math.pi)) / (2 * math.log(rope.theta))

    low = max(math.floor(pair_that_turns(rope.beta_fast)), 0)
    high = min(math.ceil(pair_that_turns(rope.beta_slow)), rope.dim - 1)
    ramp = np.clip((np.arange(rope.dim // 2) - low) / max(high - low, 0.001), 0.0, 1.0)
    return frequency * (1 - ramp) + frequency / rope.factor * ramp
