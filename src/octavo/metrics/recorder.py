"""The catalogue's metrics, fed by engine steps and by the events of requests. Knows no HTTP.

All figures come from two places: `record_step` (StepStats of the engine) and a RequestClock per choice (the caller's clock).
"""

from __future__ import annotations

import dataclasses
import time
from itertools import product
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics, generate_latest

from octavo.config.schema import CacheConfig
from octavo.messages.stats import BlockResidency, StepStats, TierStats
from octavo.messages.wire import EngineReady
from octavo.metrics.catalogue import METRICS, PARSER_MODES, PARSER_OUTCOMES, REQUEST_TYPES, Metric, RequestType, token_buckets
from octavo.metrics.snapshot import Snapshot, snapshot

disable_created_metrics()  # type: ignore[no-untyped-call]  # a time stamp beside every counter, which no dashboard reads

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsRecorder:
    """One registry, so that several can live in one process (tests). All series exist from the start."""

    def __init__(self, prefix: str, model_name: str, ready: EngineReady, cache: CacheConfig) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)  # CPU and memory of the process that answers HTTP, without the prefix
        self._labels = {"model_name": model_name, "engine": "0"}
        self._prefix = prefix
        self._metrics = {metric.name: self._make(metric, ready.max_model_len) for metric in METRICS}
        self._success = self._series("request_success")
        self._waiting = self._series("num_requests_waiting_by_reason")
        self._sources = self._series("prompt_tokens_by_source")
        self._losses = self._series("kv_tier_lost_blocks")
        self._open_clocks: set[RequestClock] = set()
        self._parsed = {
            (mode, outcome, api): self._metrics["tool_call_parser_invocations"].labels(
                **self._labels, mode=mode, outcome=outcome, request_type=api
            )
            for mode, outcome, api in product(PARSER_MODES, PARSER_OUTCOMES, REQUEST_TYPES)
        }
        self._plain = {metric.name: self._metrics[metric.name].labels(**self._labels) for metric in METRICS if not metric.labels}
        self._publish_cache_config(ready, cache)

    def render(self, *, is_idle: bool) -> bytes:
        """Return all metrics in Prometheus' text format. `is_idle`: no request is unfinished, whatever the last step said."""
        self._settle(is_idle)
        return generate_latest(self._registry)

    def snapshot(self, *, is_idle: bool) -> Snapshot:
        """Return all metrics as values."""
        self._settle(is_idle)
        return snapshot(self._registry)

    def _settle(self, is_idle: bool) -> None:
        if is_idle:  # the last requests may have been aborted, and that is no step
            for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
                self._plain[name].set(0)
            for series in self._waiting.values():
                series.set(0)
        self._plain["requests_in_flight"].set(len(self._open_clocks))

    def record_step(self, step: StepStats) -> None:
        plain = self._plain
        plain["num_requests_running"].set(step.num_running)
        plain["num_requests_waiting"].set(step.num_waiting)
        self._waiting["capacity"].set(step.num_waiting - step.num_deferred)
        self._waiting["deferred"].set(step.num_deferred)
        plain["kv_cache_usage_perc"].set(step.kv_usage)
        plain["prefix_cache_queries"].inc(step.prefix_cache_queries)
        plain["prefix_cache_hits"].inc(step.prefix_cache_hits)
        plain["external_prefix_cache_queries"].inc(step.external_queries)
        plain["external_prefix_cache_hits"].inc(step.external_hits)
        plain["num_preemptions"].inc(step.num_preemptions)
        plain["corrupted_requests"].inc(step.num_nan_rows)
        plain["iteration_tokens_total"].observe(step.num_prompt_tokens + step.num_output_tokens)

        if step.tier is not None:
            self._record_tier(step.tier)
        if step.estimate is not None:
            plain["estimated_flops_per_gpu"].inc(step.estimate.operations)
            plain["estimated_read_bytes_per_gpu"].inc(step.estimate.read_bytes)
            plain["estimated_write_bytes_per_gpu"].inc(step.estimate.write_bytes)
        if step.residency is not None:
            self._record_residency(step.residency)

    def _record_tier(self, tier: TierStats) -> None:
        self._plain["kv_tier_bytes"].set(tier.held_bytes)
        self._plain["kv_tier_stored_bytes"].inc(tier.stored_bytes)
        self._plain["kv_tier_loaded_bytes"].inc(tier.loaded_bytes)
        for reason, count in tier.lost_blocks.items():
            self._losses[reason].inc(count)

    def _record_residency(self, seen: BlockResidency) -> None:
        for name, seconds in (
            ("kv_block_lifetime_seconds", seen.lifetimes_s),
            ("kv_block_idle_before_evict_seconds", seen.idles_s),
            ("kv_block_reuse_gap_seconds", seen.reuse_gaps_s),
        ):
            for value in seconds:
                self._plain[name].observe(value)

    def start_request(self, n: int, max_tokens: int, arrival_s: float) -> list[RequestClock]:
        """Return one clock for each of the n choices; each must be ended. `arrival_s` is in monotonic seconds."""
        self._plain["request_params_n"].observe(n)
        self._plain["request_params_max_tokens"].observe(max_tokens)
        group = ChoiceGroup(self, n)
        return [RequestClock(self, arrival_s, group) for _ in range(n)]

    def start_text(self, arrival_s: float) -> RequestClock:
        """Return a clock for a text that is read for its vector or scores; it must be ended."""
        return RequestClock(self, arrival_s)

    def observe(self, name: str, value: float) -> None:
        self._plain[name].observe(value)

    def count(self, name: str, amount: int) -> None:
        self._plain[name].inc(amount)

    def count_prompt(self, num_tokens: int, num_cached_tokens: int, num_loaded_tokens: int) -> None:
        """Count a prompt that is beginning to be answered: of its tokens `num_cached_tokens` were found, of these `num_loaded_tokens`
        beyond the pool."""
        self._plain["prompt_tokens"].inc(num_tokens)
        self._plain["prompt_tokens_cached"].inc(num_cached_tokens)
        self._sources["local_compute"].inc(num_tokens - num_cached_tokens)
        self._sources["local_cache_hit"].inc(num_cached_tokens - num_loaded_tokens)
        self._sources["external_kv_transfer"].inc(num_loaded_tokens)

    def count_parsed(self, api: RequestType, *, is_streamed: bool, has_calls: bool) -> None:
        """Count an answer that was looked through for tool calls."""
        self._parsed["streaming" if is_streamed else "non_streaming", "tool_call" if has_calls else "no_tool_call", api].inc()

    def open_clock(self, clock: RequestClock) -> None:
        self._open_clocks.add(clock)
        self._plain["requests_accepted"].inc()

    def close_clock(self, clock: RequestClock, reason: str) -> None:
        self._open_clocks.remove(clock)
        self._success[reason].inc()

    def _series(self, name: str) -> dict[str, Any]:
        """Return the series of a metric with one label of its own, by the label's values."""
        ((label, values),) = next(metric for metric in METRICS if metric.name == name).labels.items()
        return {value: self._metrics[name].labels(**self._labels, **{label: value}) for value in values}

    def _make(self, metric: Metric, max_model_len: int) -> Any:
        labels = (*self._labels, *metric.labels)
        name = self._prefix + metric.name
        if metric.kind == "histogram":
            buckets = token_buckets(max_model_len) if metric.buckets == "tokens" else metric.buckets
            return Histogram(name, metric.help, labels, buckets=buckets, registry=self._registry)
        return {"gauge": Gauge, "counter": Counter}[metric.kind](name, metric.help, labels, registry=self._registry)

    def _publish_cache_config(self, ready: EngineReady, cache: CacheConfig) -> None:
        facts = dataclasses.asdict(cache) | {
            "block_size": ready.block_size,
            "num_gpu_blocks": ready.num_blocks,
            "kv_cache_size_tokens": ready.kv_cache_tokens,
            "kv_cache_max_concurrency": ready.max_concurrency,
            "engine": "0",
        }
        labels = {name: str(value) for name, value in facts.items()}
        Gauge(f"{self._prefix}cache_config_info", "The KV memory's settings, as labels.", tuple(labels), registry=self._registry).labels(
            **labels
        ).set(1)


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
        metrics.open_clock(self)

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
            self._metrics.observe("inter_token_latency_seconds", now - self._last_s)
        self._last_s = now
        self._num_tokens += num_new
        self._metrics.count("generation_tokens", num_new)

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
        self._metrics.close_clock(self, reason)


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
