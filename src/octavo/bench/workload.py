"""Made-up prompts for measuring: random token ids, new ones for every call, so that no prefix cache can help."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """`num_prompts` prompts of `input_len` tokens, each answered with exactly `output_len`."""

    num_prompts: int
    input_len: int
    output_len: int


def random_prompts(workload: Workload, vocab_size: int, rng: random.Random) -> list[list[int]]:
    return [[rng.randrange(vocab_size) for _ in range(workload.input_len)] for _ in range(workload.num_prompts)]


def percentile(values: list[float], percent: float) -> float:
    """Return the value below which `percent` of the values lie, linear between neighbours."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
