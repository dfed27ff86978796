"""`ResidencyMeter`: how long blocks stay in the pool, how long they lie unused, and after how long they are used again.

A block's life runs from being taken to being taken anew, whatever it held; taking and each prefix hit are uses. Of the lives a
share is followed, drawn when they begin. The pool tells of its blocks, this adds the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from random import Random

from octavo.messages.stats import BlockResidency


class ResidencyMeter:
    def __init__(self, sample: float, *, clock: Callable[[], float] = time.monotonic, rng: Random | None = None) -> None:
        """`sample`: the share of lives that are followed, 0..1."""
        self._sample = sample
        self._clock = clock
        self._random = (rng or Random()).random
        self._lives: dict[int, tuple[float, float]] = {}  # block -> (taken, last used), in seconds
        self._seen = BlockResidency([], [], [])

    def taken(self, block_ids: Iterable[int]) -> None:
        """These blocks begin a life, which ends the one before."""
        now = self._clock()
        for block_id in block_ids:
            if (life := self._lives.pop(block_id, None)) is not None:
                self._seen.lifetimes_s.append(now - life[0])
                self._seen.idles_s.append(now - life[1])
            if self._random() < self._sample:
                self._lives[block_id] = (now, now)

    def used(self, block_ids: Iterable[int]) -> None:
        """These blocks were found by a request."""
        now = self._clock()
        for block_id in block_ids:
            if (life := self._lives.get(block_id)) is not None:
                self._seen.reuse_gaps_s.append(now - life[1])
                self._lives[block_id] = (life[0], now)

    def clear(self) -> None:
        """Follow none of the present lives any more."""
        self._lives.clear()

    def take_seen(self) -> BlockResidency:
        """Return, once, what was seen since the last time."""
        seen, self._seen = self._seen, BlockResidency([], [], [])
        return seen
