"""How fast a queue drains, so that a caller who is sent away can be told when to come again."""

from __future__ import annotations

import time
from collections import deque

WINDOW_S = 30.0  # what left earlier says nothing of now
MOST_DEPARTURES = 256
LEAST_S, MOST_S = 1.0, 60.0


class DrainRate:
    """Counts what leaves; `seconds_for` tells how long it takes until so much more has left, at the pace of late."""

    def __init__(self) -> None:
        self._departures: deque[tuple[float, int]] = deque(maxlen=MOST_DEPARTURES)

    def count(self, amount: int) -> None:
        self._departures.append((time.monotonic(), amount))

    def seconds_for(self, amount: int) -> float:
        """Return 1..60 seconds; 1 when nothing has left of late."""
        now = time.monotonic()
        while self._departures and now - self._departures[0][0] > WINDOW_S:
            self._departures.popleft()
        left = sum(count for _, count in self._departures)
        if left == 0:
            return LEAST_S
        return min(MOST_S, max(LEAST_S, amount * (now - self._departures[0][0]) / left))
