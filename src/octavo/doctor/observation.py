"""What was seen of a server in one span of time: the only thing that rules look at. Frozen values, no clock, no network.

A figure that the server does not tell is None, or 0 for a counter; a rule that needs it stays silent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """The flags that the rules reason with, as the server tells them or the operator states them."""

    program: str = "octavo"  # octavo | vllm: which command line the advice is written for
    model: str = "MODEL"
    num_engines: int = 1
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_queued_reqs: int | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    num_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float | None = None
    weight_bytes: int | None = None
    kv_bytes_per_token: float | None = None
    device: str | None = None
    bandwidth: float | None = None  # bytes a second
    ttft_slo_s: float | None = None
    itl_slo_s: float | None = None

    @property
    def seats(self) -> int | None:
        """Requests that can run at once, over all engines."""
        return None if self.max_num_seqs is None else self.max_num_seqs * self.num_engines

    @property
    def kv_tokens(self) -> int | None:
        """Tokens of KV memory, over all engines; one block of each pool is the null block."""
        if self.num_blocks is None or self.block_size is None:
            return None
        return (self.num_blocks - 1) * self.block_size * self.num_engines


@dataclass(frozen=True)
class Sample:
    """Gauges at one moment, `at_s` seconds into the window. `kv_usage` is 0..1, the fullest engine's.

    `answer_s`: seconds that the server took to answer /metrics, for which it needs no engine.
    """

    at_s: float
    running: float
    waiting: float
    kv_usage: float
    answer_s: float = 0.0


@dataclass(frozen=True)
class Counts:
    """Counters: how far they went in the window, or since the server started."""

    preemptions: float = 0.0
    prefix_queries: float = 0.0
    prefix_hits: float = 0.0
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    generation_tokens: float = 0.0
    finished: float = 0.0
    failed: float = 0.0
    refused: float = 0.0  # with 503, for want of room
    expired: float = 0.0  # with 504, at their deadline
    corrupted: float = 0.0
    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0
    cpu_s: float | None = None  # of the process that answers HTTP

    @property
    def hit_rate(self) -> float | None:
        return self.prefix_hits / self.prefix_queries if self.prefix_queries else None


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` values lie above `bounds[i - 1]` and at or below `bounds[i]`; the last bound is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def share_above(self, bound: float) -> float:
        """Return the share of values in buckets that lie wholly above `bound`."""
        above = sum(count for low, count in zip(self._lows(), self.counts, strict=True) if low >= bound)
        return above / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Return the value that `share` of all lie below, linear within its bucket, as PromQL's histogram_quantile has it."""
        wanted, seen = share * self.count, 0.0
        for low, bound, count in zip(self._lows(), self.bounds, self.counts, strict=True):
            if count and seen + count >= wanted:
                return low if math.isinf(bound) else low + (bound - low) * (wanted - seen) / count
            seen += count
        return 0.0

    def bucket_below(self, bound: float) -> float:
        """Return the largest bucket bound below `bound`, or 0: values above it are as near to `bound` as the buckets tell."""
        return max((each for each in self.bounds if each < bound), default=0.0)

    def _lows(self) -> Iterator[float]:
        yield 0.0
        yield from self.bounds[:-1]


@dataclass(frozen=True)
class Times:
    """A latency in seconds, however it was measured."""

    count: float
    mean: float
    p50: float
    p99: float


@dataclass(frozen=True)
class Observation:
    """`counts` went by in `seconds`; `before` had gone by when the window began, None where that is not known."""

    source: str
    seconds: float
    settings: Settings = field(default_factory=Settings)
    samples: tuple[Sample, ...] = ()
    counts: Counts = field(default_factory=Counts)
    before: Counts | None = None
    step_tokens: Histogram | None = None
    ttft: Times | None = None
    itl: Times | None = None
    e2e: Times | None = None
    queue: Times | None = None
    mean_prompt_tokens: float | None = None
    mean_output_tokens: float | None = None
    most_at_once: float | None = None  # requests in flight, as the client saw it
    illness: str | None = None  # what /health says when it is not 200

    def mean(self, gauge: str) -> float:
        values = [float(getattr(sample, gauge)) for sample in self.samples]
        return sum(values) / len(values) if values else 0.0

    def peak(self, gauge: str) -> float:
        return max((float(getattr(sample, gauge)) for sample in self.samples), default=0.0)

    @property
    def request_tokens(self) -> float | None:
        """Tokens of KV memory that a request takes at its end, on average."""
        if self.mean_prompt_tokens is None:
            return None
        return self.mean_prompt_tokens + (self.mean_output_tokens or 0.0)

    @property
    def prefill_share(self) -> float | None:
        """Share of all computed tokens that are prompt tokens, None when there was no step."""
        if self.step_tokens is None or not self.step_tokens.total:
            return None
        return max(0.0, 1 - self.counts.generation_tokens / self.step_tokens.total)
