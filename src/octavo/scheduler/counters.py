"""`Counters`: what a scheduler has done so far, for metrics."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct):
    """Totals since the scheduler was made, in tokens unless said."""

    prompt_tokens: int = 0  # computed, not cached
    output_tokens: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0  # in the pool
    external_queries: int = 0  # looked up beyond the pool
    external_hits: int = 0
    preemptions: int = 0  # events
    nan_rows: int = 0  # requests
