"""Engine -> metrics: what one step did, in counts and seconds."""

from __future__ import annotations

from typing import Literal

import msgspec

# Why a block is beyond the pool no more, or never was: pushed out by newer ones, too much waited to be written, not written, found changed.
LossReason = Literal["evicted", "backlog", "unwritable", "damaged"]


class BlockResidency(msgspec.Struct, frozen=True, array_like=True):
    """What was seen of sampled KV blocks, in seconds: their lives and their last idle time, of those that ended; the times between
    two uses."""

    lifetimes_s: list[float]
    idles_s: list[float]
    reuse_gaps_s: list[float]


class TierStats(msgspec.Struct, frozen=True, array_like=True):
    """KV beyond the pool: what is held now; what was copied out, brought in and lost since the step before."""

    held_bytes: int
    stored_bytes: int
    loaded_bytes: int
    lost_blocks: dict[LossReason, int]


class StepEstimate(msgspec.Struct, frozen=True, array_like=True):
    """What a step has to do at least: operations of its arithmetic, bytes that it reads and writes."""

    operations: int
    read_bytes: int
    write_bytes: int


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
    external_queries: int = 0  # tokens looked up beyond the pool in this step
    external_hits: int = 0  # tokens brought in from there
    tier: TierStats | None = None  # None: there is nothing beyond the pool
    residency: BlockResidency | None = None  # None: not measured
    estimate: StepEstimate | None = None  # None: not asked for
