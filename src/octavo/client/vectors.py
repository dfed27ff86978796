"""Vectors that encoders give, as arrays. Only here does the caller's side need NumPy: a server of text never loads it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


def read_values(pooled: bytes, num_rows: int | None) -> FloatArray:
    """Return the numbers of TokenDelta.pooled: [numbers], or [num_rows, numbers / num_rows]."""
    values = np.frombuffer(pooled, np.float32)
    return values if num_rows is None else values.reshape(num_rows, -1)


def cosine(a: FloatArray, b: FloatArray) -> float:
    """Return the cosine of two vectors; 0 where one is zero."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    length = float(np.linalg.norm(wide_a) * np.linalg.norm(wide_b))
    return float(wide_a @ wide_b) / length if length else 0.0
