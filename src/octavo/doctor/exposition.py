"""One page of /metrics as figures, whatever its prefix: Octavo's and vLLM's have the same names. Sums over engines and models.

Format: Prometheus text exposition, read by prometheus_client's parser.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from octavo.doctor.observation import Counts, Histogram
from octavo.errors import RequestError

_LANDMARK = "num_requests_running"


@dataclass(frozen=True)
class Page:
    """`values`: series name without prefix -> sum; `buckets`: histogram -> upper bound -> cumulative count.

    `kv_usage` is the fullest engine's. `cache_config`: the labels of cache_config_info.
    """

    values: Mapping[str, float]
    buckets: Mapping[str, Mapping[float, float]]
    kv_usage: float
    num_engines: int
    models: tuple[str, ...]
    cache_config: Mapping[str, str]
    answer_s: float = 0.0  # from asking for the page to having it

    def counts(self) -> Counts:
        read = self.values.get
        return Counts(
            preemptions=read("num_preemptions_total", 0.0),
            prefix_queries=read("prefix_cache_queries_total", 0.0),
            prefix_hits=read("prefix_cache_hits_total", 0.0),
            prompt_tokens=read("prompt_tokens_total", 0.0),
            cached_tokens=read("prompt_tokens_cached_total", 0.0),
            generation_tokens=read("generation_tokens_total", 0.0),
            finished=read("request_success_total", 0.0),
            failed=read("request_success_total{error}", 0.0),
            refused=read("requests_refused_total", 0.0),
            expired=read("requests_expired_total", 0.0),
            corrupted=read("corrupted_requests_total", 0.0),
            drafts=read("spec_decode_num_drafts_total", 0.0),
            draft_tokens=read("spec_decode_num_draft_tokens_total", 0.0),
            accepted_tokens=read("spec_decode_num_accepted_tokens_total", 0.0),
            cpu_s=read("process_cpu_seconds_total"),
        )

    def histogram(self, name: str) -> Histogram | None:
        """Return all that the histogram has counted, None where there is none."""
        cumulative = sorted(self.buckets.get(name, {}).items())
        if not cumulative:
            return None
        totals = [count for _, count in cumulative]
        counts = tuple(after - before for before, after in zip([0.0, *totals], totals, strict=False))
        return Histogram(tuple(bound for bound, _ in cumulative), counts, self.values.get(f"{name}_sum", 0.0))


def read_page(text: str) -> Page:
    """Return the figures of one scrape. Raises RequestError for a page that is not that of an LLM server."""
    try:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (ValueError, KeyError, IndexError) as error:
        raise RequestError(f"/metrics is no Prometheus text: {error}") from error
    landmark = next((sample.name for sample in samples if sample.name.endswith(_LANDMARK)), None)
    if landmark is None:
        raise RequestError(f"/metrics has no {_LANDMARK}: this is neither Octavo nor vLLM, or its model is not loaded yet")
    prefix = landmark.removesuffix(_LANDMARK)

    values: dict[str, float] = defaultdict(float)
    buckets: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    engines: set[tuple[str, str]] = set()
    kv_usage, cache_config = 0.0, {}
    for sample in samples:
        name, labels = sample.name.removeprefix(prefix), sample.labels
        if name == _LANDMARK:
            engines.add((labels.get("model_name", ""), labels.get("engine", "0")))
        if name == "kv_cache_usage_perc":
            kv_usage = max(kv_usage, sample.value)
        if name == "cache_config_info":
            cache_config = labels
        elif name.endswith("_bucket"):
            buckets[name.removesuffix("_bucket")][float(labels["le"])] += sample.value
        elif not math.isnan(sample.value):
            values[name] += sample.value
            if labels.get("finished_reason") == "error":
                values[f"{name}{{error}}"] += sample.value
    return Page(values, buckets, kv_usage, max(1, len(engines)), tuple(sorted({model for model, _ in engines if model})), cache_config)
