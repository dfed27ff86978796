"""When sessions come: at once, at a rate, burstily, ramping up, or as a trace has it. Pure functions of a seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Ramp:
    """The rate goes from `start_rps` to `end_rps` over the run, in sessions a second."""

    strategy: Literal["linear", "exponential"]
    start_rps: float
    end_rps: float

    def rate(self, share: float) -> float:
        """Return the rate when `share` (0..1) of the sessions have come."""
        if self.strategy == "linear":
            return self.start_rps + (self.end_rps - self.start_rps) * share
        return float(self.start_rps * (self.end_rps / self.start_rps) ** share)


def arrival_times(count: int, rate: float | Ramp, burstiness: float, rng: random.Random) -> list[float]:
    """Return `count` times in seconds, ascending from 0, with gamma-distributed gaps.

    `burstiness` is the gamma's shape: 1 is a Poisson process, less is burstier, more is steadier. A rate of infinity has
    all come at once. With a fixed rate the times are stretched so that the last gap ends at count / rate: the offered load
    is the one asked for, not the one drawn.
    """
    if not isinstance(rate, Ramp) and math.isinf(rate):
        return [0.0] * count
    times, now = [], 0.0
    for index in range(count):
        times.append(now)
        current = rate.rate(index / max(1, count - 1)) if isinstance(rate, Ramp) else rate
        now += rng.gammavariate(burstiness, 1 / (current * burstiness))
    if isinstance(rate, Ramp) or now == 0:
        return times
    stretch = count / rate / now
    return [moment * stretch for moment in times]
