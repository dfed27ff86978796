"""`RequestClock`: the times of one choice, from its arrival to its end, observed when they are known."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.metrics.recorder import MetricsRecorder


class RequestClock:
    """Times one choice: `tokens` for each output, `end` once, whatever the reason."""

    def __init__(self, metrics: MetricsRecorder, arrival_s: float, group: ChoiceGroup | None = None) -> None:
        """`group`: the choices of the request that it belongs to."""
        self._metrics = metrics
        self._group = group
        self._arrival_s = arrival_s
        self._queued_s = time.monotonic()
        self._begun_s: float | None = None
        self._first_s = 0.0
        self._last_s = 0.0
        self._num_tokens = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._is_ended = False
        metrics.open_clock()

    def begin(self, begun_s: float) -> None:
        """The engine planned its first step at `begun_s`; of several calls the first one counts."""
        if self._begun_s is None:
            self._begun_s = begun_s

    def tokens(self, num_new: int, num_prompt_tokens: int, num_cached_tokens: int, num_loaded_tokens: int = 0) -> None:
        """`num_new` tokens have come now. The prompt's counts are read at the first."""
        if num_new == 0:
            return
        now = time.monotonic()
        if self._num_tokens == 0:
            self._first_s = now
            self._num_prompt_tokens = num_prompt_tokens
            self._num_cached_tokens = num_cached_tokens
            self._metrics.observe("time_to_first_token_seconds", now - self._arrival_s)
            self._metrics.count_prompt(num_prompt_tokens, num_cached_tokens, num_loaded_tokens)
        else:
            self._metrics.between_tokens.observe(now - self._last_s)
        self._last_s = now
        self._num_tokens += num_new
        self._metrics.generation_tokens.inc(num_new)

    def answer(self, num_prompt_tokens: int) -> None:
        """The one answer to a text has come now: count it, and its end."""
        if self._is_ended:
            return
        self._close("stop")
        self._metrics.count_prompt(num_prompt_tokens, 0, 0)
        self._metrics.observe("request_prompt_tokens", num_prompt_tokens)
        self._metrics.observe("e2e_request_latency_seconds", time.monotonic() - self._arrival_s)

    def end(self, reason: str, num_preemptions: int = 0) -> None:
        """Count the end; of several calls the first one counts."""
        if self._is_ended:
            return
        self._close(reason)
        if self._group is not None:
            self._group.end(self._num_tokens)
        if self._num_tokens == 0 or reason in ("abort", "error"):
            return
        observe = self._metrics.observe
        observe("e2e_request_latency_seconds", self._last_s - self._arrival_s)
        observe("request_decode_time_seconds", self._last_s - self._first_s)
        if self._begun_s is not None:
            observe("request_queue_time_seconds", max(0.0, self._begun_s - self._queued_s))
            observe("request_prefill_time_seconds", self._first_s - self._begun_s)
            observe("request_inference_time_seconds", self._last_s - self._begun_s)
        observe("request_prompt_tokens", self._num_prompt_tokens)
        observe("request_prefill_kv_computed_tokens", self._num_prompt_tokens - self._num_cached_tokens)
        observe("request_generation_tokens", self._num_tokens)
        observe("request_num_preemptions", num_preemptions)
        if self._num_tokens > 1:
            observe("request_time_per_output_token_seconds", (self._last_s - self._first_s) / (self._num_tokens - 1))

    def _close(self, reason: str) -> None:
        self._is_ended = True
        self._metrics.close_clock(reason)


class ChoiceGroup:
    """The choices of one request: when all have ended, the longest is counted."""

    def __init__(self, metrics: MetricsRecorder, num_choices: int) -> None:
        self._metrics = metrics
        self._num_open = num_choices
        self._most_tokens = 0

    def end(self, num_tokens: int) -> None:
        self._num_open -= 1
        self._most_tokens = max(self._most_tokens, num_tokens)
        if self._num_open == 0 and self._most_tokens:
            self._metrics.observe("request_max_num_generation_tokens", self._most_tokens)
