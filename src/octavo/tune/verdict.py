"""When a difference is sure: two candidates measured in the same rounds, by the ratios of their scores.

A round measures all finalists one after another, so what disturbs the machine for longer than a round disturbs all of them.
The interval is Student's for the mean of the logarithms of the ratios, at 95 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MIN_ROUNDS = 3
SAME = 1.05  # a ratio within 1/SAME .. SAME is no difference
_STUDENT_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}  # by degrees of freedom


@dataclass(frozen=True)
class Ratio:
    """How many times the score of `other` the score of `one` is, and between which bounds at 95 %."""

    mean: float
    low: float
    high: float
    rounds: int

    @property
    def is_better(self) -> bool:
        return self.rounds >= MIN_ROUNDS and self.low > 1

    @property
    def is_worse(self) -> bool:
        return self.rounds >= MIN_ROUNDS and self.high < 1

    @property
    def is_same(self) -> bool:
        return self.rounds >= MIN_ROUNDS and self.low > 1 / SAME and self.high < SAME

    @property
    def is_sure(self) -> bool:
        return self.is_better or self.is_worse or self.is_same

    def __str__(self) -> str:
        return f"{self.mean:.2f}x ({self.low:.2f} to {self.high:.2f} in {self.rounds} rounds)"


def compare(one: Sequence[float], other: Sequence[float]) -> Ratio:
    """Return the ratio of two series of scores of the same rounds. A score of 0 counts as a thousandth of the other."""
    logs = [math.log(max(a, 1e-3 * b) / max(b, 1e-3 * a)) for a, b in zip(one, other, strict=True) if a > 0 or b > 0]
    if not logs:
        return Ratio(1.0, 0.0, math.inf, 0)
    mean = statistics.fmean(logs)
    if len(logs) == 1:
        return Ratio(math.exp(mean), 0.0, math.inf, 1)
    student = _STUDENT_95.get(len(logs) - 1, 2.0)
    half = student * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))
