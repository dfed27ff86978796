"""Makes an Observation: of two and more pages of /metrics with what the server says of itself, or of a saved bench result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.doctor.exposition import Page
from octavo.doctor.observation import Counts, Histogram, Observation, Sample, Settings, Times
from octavo.errors import ConfigError


def observe_server(source: str, pages: Sequence[tuple[float, Page]], settings: Settings, illness: str | None = None) -> Observation:
    """Return what went by between the first and the last of `pages`, which are (seconds, page), at least two, in order.

    `settings` holds what is known beside the pages; what cache_config_info tells is filled in.
    """
    (start_s, first), (end_s, last) = pages[0], pages[-1]
    ttft = _went_by("time_to_first_token_seconds", first, last)
    outputs = _went_by("request_generation_tokens", first, last)
    counts = _difference(last.counts(), first.counts())
    begun, asked = last.histogram("time_to_first_token_seconds"), last.histogram("request_params_max_tokens")
    ever = last.counts()
    return Observation(
        source=source,
        seconds=end_s - start_s,
        settings=_with_cache_config(settings, last),
        samples=tuple(_sample(at_s - start_s, page) for at_s, page in pages),
        counts=counts,
        before=first.counts(),
        step_tokens=_went_by("iteration_tokens_total", first, last),
        ttft=_times(ttft),
        itl=_times(_went_by("inter_token_latency_seconds", first, last)),
        e2e=_times(_went_by("e2e_request_latency_seconds", first, last)),
        queue=_times(_went_by("request_queue_time_seconds", first, last)),
        mean_prompt_tokens=_share(counts.prompt_tokens, ttft) or _share(ever.prompt_tokens, begun),
        mean_output_tokens=_mean(outputs) or _mean(asked) or _share(ever.generation_tokens, begun),
        illness=illness,
    )


def observe_bench(source: str, result: Mapping[str, Any], settings: Settings) -> Observation:
    """Return what a result of `octavo bench serve` (or vLLM's) shows. Raises ConfigError for another file."""
    try:
        completed, failed = float(result["completed"]), float(result.get("failed") or 0)
        given, made, seconds = float(result["total_input_tokens"]), float(result["total_output_tokens"]), float(result["duration"])
        times = {name: _bench_times(result, name, completed, made) for name in ("ttft", "itl", "e2el")}
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{source} is no result of octavo bench serve: {error}") from None
    return Observation(
        source=source,
        seconds=seconds or 1e-9,
        settings=dataclasses.replace(settings, model=str(result.get("model_id") or settings.model)),
        counts=Counts(generation_tokens=made, prompt_tokens=given, finished=completed + failed, failed=failed),
        ttft=times["ttft"],
        itl=times["itl"],
        e2e=times["e2el"],
        mean_prompt_tokens=given / completed if completed else None,
        mean_output_tokens=made / completed if completed else None,
        most_at_once=_number(result.get("max_concurrent_requests") or result.get("max_concurrency")),
    )


def _sample(at_s: float, page: Page) -> Sample:
    gauges = page.values
    return Sample(at_s, gauges.get("num_requests_running", 0.0), gauges.get("num_requests_waiting", 0.0), page.kv_usage, page.answer_s)


def _bench_times(result: Mapping[str, Any], name: str, completed: float, made: float) -> Times | None:
    keys = [f"{kind}_{name}_ms" for kind in ("mean", "median", "p99")]
    if any(result.get(key) is None for key in keys):
        return None
    mean, median, p99 = (float(result[key]) / 1000 for key in keys)
    return Times(max(0.0, made - completed) if name == "itl" else completed, mean, median, p99)


def _with_cache_config(settings: Settings, page: Page) -> Settings:
    told = page.cache_config
    return dataclasses.replace(
        settings,
        model=settings.model if settings.model != Settings.model or not page.models else page.models[0],
        num_engines=page.num_engines,
        block_size=_integer(told.get("block_size")),
        num_blocks=_integer(told.get("num_gpu_blocks")),
        num_blocks_override=_integer(told.get("num_gpu_blocks_override")),
        kv_cache_memory_bytes=_integer(told.get("kv_cache_memory_bytes")),
        gpu_memory_utilization=_number(told.get("gpu_memory_utilization")),
    )


def _difference(last: Counts, first: Counts) -> Counts:
    """Return how far each counter went. One that went back has been started anew: it counts from 0."""
    pairs = {field.name: (getattr(last, field.name), getattr(first, field.name)) for field in dataclasses.fields(Counts)}
    moved: dict[str, Any] = {name: a if a is None or b is None or a < b else a - b for name, (a, b) in pairs.items()}
    return Counts(**moved)


def _went_by(name: str, first: Page, last: Page) -> Histogram | None:
    before, after = first.histogram(name), last.histogram(name)
    if after is None:
        return None
    if before is None or before.count > after.count or before.bounds != after.bounds:
        return after
    counts = tuple(new - old for new, old in zip(after.counts, before.counts, strict=True))
    return Histogram(after.bounds, counts, after.total - before.total)


def _times(histogram: Histogram | None) -> Times | None:
    if histogram is None or not histogram.count:
        return None
    return Times(histogram.count, histogram.mean, histogram.quantile(0.5), histogram.quantile(0.99))


def _mean(histogram: Histogram | None) -> float | None:
    return histogram.mean if histogram is not None and histogram.count else None


def _share(total: float, of: Histogram | None) -> float | None:
    return total / of.count if of is not None and of.count else None


def _integer(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
