"""Engine -> metrics: what one step did, in counts and seconds."""

from __future__ import annotations

import msgspec


class StepStats(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Counts and seconds of one engine step: the only source of the engine's metrics."""

    step_id: int
    num_running: int
    num_waiting: int
    num_scheduled_tokens: int
    num_prompt_tokens: int  # of those, prompt tokens computed
    num_output_tokens: int  # tokens sampled
    num_preemptions: int
    num_nan_rows: int
    kv_usage: float  # 0..1
    prefix_cache_queries: int  # tokens looked up in this step
    prefix_cache_hits: int  # tokens found
    schedule_s: float
    device_s: float
    step_s: float
    num_deferred: int = 0  # of num_waiting, those whose KV is being read back from beyond the pool
