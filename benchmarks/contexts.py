"""What a long context costs: time to the first token, time a token, and memory, of Octavo's server by length of the prompt.

Each length has a server of its own and one user. Three straight lines say whether costs grow as they must: the time of a prompt
token and of an output token over the context (what is added is attention alone), and peak memory over the context (KV alone).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from engines import Engine
from loads import Server, serving
from roofline import Roofline

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
OUTPUT_LEN = 32
SHORT = 4096  # up to this a length is asked for three times more


@dataclass(frozen=True)
class Point:
    """`ttft_s`, `token_s`: seconds to the first token and of each later one; limits are what the roofline allows."""

    context: int
    ttft_s: float
    token_s: float
    peak_rss_mib: float
    ttft_limit_s: float
    token_limit_s: float


def contexts_up_to(most: int) -> list[int]:
    """Return lengths of prompts, each a little below one of LENGTHS, so that the answer has room."""
    return [length - OUTPUT_LEN - 16 for length in LENGTHS if length <= most]


def measure_context(engine: Engine, roofline: Roofline, context: int) -> Point:
    """Measure one length on a server of its own."""
    with serving(engine) as server:
        _ask(server, 64, 1, seed=0)
        times = _ask(server, context, 1, seed=1)
        peak_rss_mib = server.memory().peak_rss_mib  # before other prompts take blocks of their own
        if context < SHORT:
            times = _ask(server, context, 3, seed=2)
    ttft_s, token_s = times["median_ttft_ms"] / 1e3, times["median_tpot_ms"] / 1e3
    return Point(context, ttft_s, token_s, peak_rss_mib, context / roofline.prefill(context), 1 / roofline.decode(1, context))


def likely_s(last: Point | None, context: int) -> float:
    """Return about how long the next length takes: its prompt as attention grows, and the server around it."""
    return 15 + (last.ttft_s * (context / last.context) ** 2 * (4 if context < SHORT else 1) if last else 0.0)


def _ask(server: Server, context: int, prompts: int, seed: int) -> dict[str, float]:
    lengths = ["--random-input-len", str(context), "--random-output-len", str(OUTPUT_LEN)]
    return server.bench(["--num-prompts", str(prompts), "--max-concurrency", "1", *lengths, "--seed", str(seed)])


@dataclass(frozen=True)
class Line:
    """base + slope * context, fitted so that relative errors are least."""

    base: float
    slope: float

    @classmethod
    def through(cls, contexts: Sequence[float], values: Sequence[float]) -> Line:
        weights = 1 / np.asarray(values)
        terms = np.stack([weights, weights * np.asarray(contexts)], axis=1)
        base, slope = np.linalg.lstsq(terms, np.ones(len(values)), rcond=None)[0]
        return cls(float(base), float(slope))

    def at(self, context: float) -> float:
        return self.base + self.slope * context

    def worst(self, contexts: Sequence[float], values: Sequence[float]) -> float:
        """Return the largest distance of a value from the line, as a share of the value."""
        return max(abs(self.at(context) - value) / value for context, value in zip(contexts, values, strict=True))
