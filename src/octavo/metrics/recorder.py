"""The catalogue's metrics, fed by engine steps and by the events of requests. Knows no HTTP.

All figures come from two places: `record_step` (StepStats of the engine) and a RequestClock per choice (the caller's clock).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import msgspec

from octavo.config.schema import CacheConfig
from octavo.messages.stats import BlockResidency, StepStats, TierStats
from octavo.messages.wire import EngineReady
from octavo.metrics.catalogue import METRICS, Metric, RequestType, token_buckets
from octavo.metrics.figures import Counter, Figures, Gauge, Histogram
from octavo.metrics.request_clock import ChoiceGroup, RequestClock

if TYPE_CHECKING:
    from octavo.metrics.exposition import Exposition
    from octavo.metrics.families import Labels
    from octavo.metrics.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsRecorder:
    """One set of metrics, so that several can live in one process (tests). All series exist from the start.

    `figures`: where the values stand, when other processes have a part in them. `process_ids`: returns theirs and this one's; none
    for this one alone."""

    def __init__(
        self,
        prefix: str,
        model_name: str,
        ready: EngineReady,
        cache: CacheConfig,
        figures: Figures | None = None,
        process_ids: Callable[[], list[int]] = list,
    ) -> None:
        self._figures = figures or Figures()
        self._counters: dict[str, dict[Labels, Counter]] = {}  # by metric, then by the values of its own labels
        self._gauges: dict[str, dict[Labels, Gauge]] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in METRICS:
            self._make(metric, ready.max_model_len)
        self._in_flight = self._gauges["requests_in_flight"][()]
        self.between_tokens = self._histograms["inter_token_latency_seconds"]
        self.generation_tokens = self._counters["generation_tokens"][()]
        self._names = prefix, model_name, _cache_facts(ready, cache)
        self._process_ids = process_ids

    @cached_property
    def _exposition(self) -> Exposition:
        from octavo.metrics.exposition import Exposition
        from octavo.metrics.families import Families

        return Exposition(Families(self._counters, self._gauges, self._histograms, *self._names), self._process_ids)

    def render(self, *, is_idle: bool) -> bytes:
        """Return all metrics in Prometheus' text format. `is_idle`: no request is unfinished, whatever the last step said."""
        return self._exposition.text(is_idle)

    def snapshot(self, *, is_idle: bool) -> Snapshot:
        """Return all metrics as values."""
        return self._exposition.values(is_idle)

    def record_step(self, step: StepStats) -> None:
        self._set("num_requests_running", step.num_running)
        self._set("num_requests_waiting", step.num_waiting)
        self._set("num_requests_waiting_by_reason", step.num_waiting - step.num_deferred, "capacity")
        self._set("num_requests_waiting_by_reason", step.num_deferred, "deferred")
        self._set("kv_cache_usage_perc", step.kv_usage)
        self.count("prefix_cache_queries", step.prefix_cache_queries)
        self.count("prefix_cache_hits", step.prefix_cache_hits)
        self.count("external_prefix_cache_queries", step.external_queries)
        self.count("external_prefix_cache_hits", step.external_hits)
        self.count("num_preemptions", step.num_preemptions)
        self.count("corrupted_requests", step.num_nan_rows)
        self.observe("iteration_tokens_total", step.num_prompt_tokens + step.num_output_tokens)
        if step.tier is not None:
            self._record_tier(step.tier)
        if step.estimate is not None:
            self.count("estimated_flops_per_gpu", step.estimate.operations)
            self.count("estimated_read_bytes_per_gpu", step.estimate.read_bytes)
            self.count("estimated_write_bytes_per_gpu", step.estimate.write_bytes)
        if step.residency is not None:
            self._record_residency(step.residency)

    def _record_tier(self, tier: TierStats) -> None:
        self._set("kv_tier_bytes", tier.held_bytes)
        self.count("kv_tier_stored_bytes", tier.stored_bytes)
        self.count("kv_tier_loaded_bytes", tier.loaded_bytes)
        for reason, count in tier.lost_blocks.items():
            self.count("kv_tier_lost_blocks", count, reason)

    def _record_residency(self, seen: BlockResidency) -> None:
        for name, seconds in (
            ("kv_block_lifetime_seconds", seen.lifetimes_s),
            ("kv_block_idle_before_evict_seconds", seen.idles_s),
            ("kv_block_reuse_gap_seconds", seen.reuse_gaps_s),
        ):
            for value in seconds:
                self.observe(name, value)

    def start_request(self, n: int, max_tokens: int, arrival_s: float) -> list[RequestClock]:
        """Return one clock for each of the n choices; each must be ended. `arrival_s` is in monotonic seconds."""
        self.observe("request_params_n", n)
        self.observe("request_params_max_tokens", max_tokens)
        group = ChoiceGroup(self, n)
        return [RequestClock(self, arrival_s, group) for _ in range(n)]

    def start_text(self, arrival_s: float) -> RequestClock:
        """Return a clock for a text that is read for its vector or scores; it must be ended."""
        return RequestClock(self, arrival_s)

    def observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def count(self, name: str, amount: float, *labels: str) -> None:
        """Count in the series with these values of the metric's own labels."""
        self._counters[name][labels].inc(amount)

    def count_prompt(self, num_tokens: int, num_cached_tokens: int, num_loaded_tokens: int) -> None:
        """Count a prompt that is beginning to be answered: of its tokens `num_cached_tokens` were found, of these `num_loaded_tokens`
        beyond the pool."""
        self.count("prompt_tokens", num_tokens)
        self.count("prompt_tokens_cached", num_cached_tokens)
        self.count("prompt_tokens_by_source", num_tokens - num_cached_tokens, "local_compute")
        self.count("prompt_tokens_by_source", num_cached_tokens - num_loaded_tokens, "local_cache_hit")
        self.count("prompt_tokens_by_source", num_loaded_tokens, "external_kv_transfer")

    def count_parsed(self, api: RequestType, *, is_streamed: bool, has_calls: bool) -> None:
        """Count an answer that was looked through for tool calls."""
        mode, outcome = "streaming" if is_streamed else "non_streaming", "tool_call" if has_calls else "no_tool_call"
        self.count("tool_call_parser_invocations", 1, mode, outcome, api)

    def open_clock(self) -> None:
        self._in_flight.inc()
        self.count("requests_accepted", 1)

    def clear(self, row: int) -> None:
        """The process of this row has ended, and what it had in flight with it."""
        self.count("request_success", int(self._in_flight.clear(row)), "abort")

    def close_clock(self, reason: str) -> None:
        self._in_flight.inc(-1)
        self.count("request_success", 1, reason)

    def _make(self, metric: Metric, max_model_len: int) -> None:
        if metric.kind == "histogram":
            bounds = token_buckets(max_model_len) if metric.buckets == "tokens" else metric.buckets
            self._histograms[metric.name] = Histogram(self._figures, bounds)
            return
        series = list(product(*metric.labels.values()))
        if metric.kind == "gauge":
            self._gauges[metric.name] = {labels: Gauge(self._figures) for labels in series}
        else:
            self._counters[metric.name] = {labels: Counter(self._figures) for labels in series}

    def _set(self, name: str, value: float, *labels: str) -> None:
        self._gauges[name][labels].set(value)


def _cache_facts(ready: EngineReady, cache: CacheConfig) -> dict[str, str]:
    facts = msgspec.to_builtins(cache) | {
        "block_size": ready.block_size,
        "num_gpu_blocks": ready.num_blocks,
        "kv_cache_size_tokens": ready.kv_cache_tokens,
        "kv_cache_max_concurrency": ready.max_concurrency,
        "engine": "0",
    }
    return {name: str(value) for name, value in facts.items()}
