"""Random numbers by counter: `uniform(seed, position)` is a pure function, so a request can be resumed anywhere.

Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3). Every
backend draws these very numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key after each round
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def philox4x32(counter: npt.NDArray[np.uint64], key: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the 4 random words of each counter [..., 4] under each key [..., 2]; all words are 32 bits in uint64."""
    c0, c1, c2, c3 = np.moveaxis(counter, -1, 0)
    k0, k1 = np.moveaxis(key, -1, 0)
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (product1 >> _32) ^ c1 ^ k0, product1 & _LOW, (product0 >> _32) ^ c3 ^ k1, product0 & _LOW
        k0, k1 = (k0 + np.uint64(_WEYL[0])) & _LOW, (k1 + np.uint64(_WEYL[1])) & _LOW
    return np.stack((c0, c1, c2, c3), axis=-1)


def uniform(seed: npt.NDArray[np.uint64], position: npt.NDArray[np.uint64], stream: int = 0) -> npt.NDArray[np.float64]:
    """Return one number in [0, 1) with 53 random bits per (seed, position) [S]: key = seed's low and high word, counter =
    position's low and high word, `stream`, 0; the top 53 of the first two words' 64 bits."""
    zero = np.zeros_like(position)
    counter = np.stack((position & _LOW, position >> _32, zero + np.uint64(stream), zero), axis=-1)
    words = philox4x32(counter, np.stack((seed & _LOW, seed >> _32), axis=-1))
    bits = (words[..., 0] << _32 | words[..., 1]) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
