"""What a load test's records amount to. Names are those of vLLM's `bench serve` results, in milliseconds and tokens a second."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from octavo.bench.serving import Record, Run
from octavo.bench.workload import percentile

TIMES = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Inter-token Latency",
    "e2el": "End-to-end Latency",
}
PERCENTILES = (50, 90, 95, 99)


def figures(run: Run, slo_ms: Mapping[str, float], percentiles: Sequence[float] = PERCENTILES) -> dict[str, Any]:
    """Return throughput, goodput and the four times. `slo_ms` maps ttft, tpot, e2el to the most that a good answer may take."""
    whole = [record for record in run.records if record.is_whole]
    seconds = run.duration_s or 1e-9
    output = sum(record.answer.num_output_tokens for record in whole)
    given = sum(record.input_len for record in whole)
    result: dict[str, Any] = {
        "duration": run.duration_s,
        "completed": len(whole),
        "failed": len(run.records) - len(whole),
        "total_input_tokens": given,
        "total_output_tokens": output,
        "request_throughput": len(whole) / seconds,
        "request_goodput": sum(_is_good(record, slo_ms) for record in whole) / seconds if slo_ms else None,
        "output_throughput": output / seconds,
        "total_token_throughput": (given + output) / seconds,
        "max_output_tokens_per_s": max(tokens_per_second(whole), default=0),
        "max_concurrent_requests": max(concurrency(run.records), default=0),
        "cached_input_tokens": sum(record.answer.num_cached_tokens for record in whole),
        "prefix_cache_hit_rate": run.prefix_cache[0] / run.prefix_cache[1] if run.prefix_cache and run.prefix_cache[1] else None,
    }
    for name, values in times_ms(whole).items():
        result |= _summary(name, values, percentiles)
    return result


def times_ms(whole: Iterable[Record]) -> dict[str, list[float]]:
    """Return every measured time of the whole answers, by the names of TIMES."""
    records = list(whole)
    return {
        "ttft": [record.answer.ttft_s * 1e3 for record in records],
        "tpot": [tpot * 1e3 for record in records if (tpot := record.tpot_s) is not None],
        "itl": [itl * 1e3 for record in records for itl in record.answer.itls_s],
        "e2el": [record.answer.latency_s * 1e3 for record in records],
    }


def tokens_per_second(records: Iterable[Record]) -> list[int]:
    """Return how many tokens came in each whole second of the run."""
    counts: Counter[int] = Counter()
    for record in records:
        first_s = record.start_s + record.answer.ttft_s
        for gap_s in accumulate(record.answer.itls_s, initial=0.0):
            counts[int(first_s + gap_s)] += 1
    return [counts[second] for second in range(max(counts, default=-1) + 1)]


def concurrency(records: Iterable[Record]) -> list[int]:
    """Return how many requests were in flight after each arrival and departure."""
    moments = sorted(moment for record in records for moment in ((record.start_s, 1), (record.start_s + record.answer.latency_s, -1)))
    return list(accumulate(change for _, change in moments))


def _is_good(record: Record, slo_ms: Mapping[str, float]) -> bool:
    taken_s = {"ttft": record.answer.ttft_s, "tpot": record.tpot_s or 0.0, "e2el": record.answer.latency_s}
    return all(taken_s[name] * 1e3 <= limit for name, limit in slo_ms.items())


def _summary(name: str, values: list[float], percentiles: Sequence[float]) -> Mapping[str, float | None]:
    if not values:
        return {f"{kind}_{name}_ms": None for kind in ("mean", "median", "std", *(f"p{percent:g}" for percent in percentiles))}
    return {
        f"mean_{name}_ms": statistics.fmean(values),
        f"median_{name}_ms": statistics.median(values),
        f"std_{name}_ms": statistics.pstdev(values),
    } | {f"p{percent:g}_{name}_ms": percentile(values, percent) for percent in percentiles}
