"""A line of figures every ten seconds while requests run; vLLM's words, for people and for scripts that read its log.

Two quiet intervals in a row, and the line goes to the debug level.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from octavo.messages.stats import StepStats

INTERVAL_S = 10.0
RECENT_STEPS = 1000  # over which the hit rate is taken

_log = logging.getLogger("octavo.server")


class StatsLine:
    """Listens to every step; `write_all` writes the lines."""

    def __init__(self) -> None:
        self._last: StepStats | None = None
        self._prompt_tokens = 0
        self._output_tokens = 0
        self._preemptions = 0
        self._lookups: deque[tuple[int, int]] = deque(maxlen=RECENT_STEPS)
        self._quiet_intervals = 0

    def record_step(self, step: StepStats) -> None:
        self._last = step
        self._prompt_tokens += step.num_prompt_tokens
        self._output_tokens += step.num_output_tokens
        self._preemptions += step.num_preemptions
        if step.prefix_cache_queries:
            self._lookups.append((step.prefix_cache_hits, step.prefix_cache_queries))

    async def write_all(self) -> None:
        """Write a line after every interval. Never returns."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.write(INTERVAL_S)

    def write(self, seconds: float) -> None:
        """Write the line of the last `seconds`, and begin anew."""
        is_quiet = self._prompt_tokens == self._output_tokens == 0
        self._quiet_intervals = self._quiet_intervals + 1 if is_quiet else 0
        if self._last is not None:
            _log.log(logging.DEBUG if self._quiet_intervals > 1 else logging.INFO, "%s", self._text(self._last, seconds, is_quiet))
        self._prompt_tokens = self._output_tokens = self._preemptions = 0

    def _text(self, step: StepStats, seconds: float, is_quiet: bool) -> str:
        hits, queries = (sum(column) for column in zip(*self._lookups, strict=True)) if self._lookups else (0, 0)
        running, waiting, usage = (0, 0, 0.0) if is_quiet else (step.num_running, step.num_waiting, step.kv_usage)
        return (
            f"Engine 000: Avg prompt throughput: {self._prompt_tokens / seconds:.1f} tokens/s, "
            f"Avg generation throughput: {self._output_tokens / seconds:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, "
            + (f"Preemptions: {self._preemptions}, " if self._preemptions else "")
            + f"GPU KV cache usage: {usage:.1%}, Prefix cache hit rate: {hits / queries if queries else 0.0:.1%}"
        )
