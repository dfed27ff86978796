"""When something that died is started again, and when it is given up: what every keeper of a process here goes by."""

from __future__ import annotations

import time
from collections import deque

RESTARTS = 3  # within RESTART_WINDOW_S; one more and it is given up
RESTART_WINDOW_S = 60.0
RESTART_DELAYS_S = (0.0, 0.5, 1.0, 2.0)


class Deaths:
    """How often something has died of late, and whether to try again."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def count(self) -> bool:
        """Count a death; return whether to try again, after `delay_s`."""
        now = time.monotonic()
        self._times.append(now)
        while now - self._times[0] > RESTART_WINDOW_S:
            self._times.popleft()
        return len(self._times) <= RESTARTS

    @property
    def delay_s(self) -> float:
        return RESTART_DELAYS_S[len(self._times) - 1]

    @property
    def reason(self) -> str:
        return f"it died {len(self._times)} times within {RESTART_WINDOW_S:.0f} s"
