"""What the page of the planner asks: a deployment in plain numbers. Closed, every field bounded; names and meaning are those of
the flags of `octavo plan`, and what is left out is as it has it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from octavo.server.openai.schemas import Body

BY_NUMBERS = "numbers"  # as `model` or `device`: the fields that follow it say what it is
OWN = "own"  # as `workload`: the same

MAX_TOKENS = 1 << 26
MAX_BYTES = 1 << 50


class PlanRequest(Body):
    """A model, the devices it runs on, and what is asked of them."""

    model_config = ConfigDict(defer_build=True)  # the check is built when the page is first asked, not when the server starts

    names_served_model: ClassVar[bool] = False

    model: str = Field("qwen3-32b", max_length=128)
    layers: int = Field(64, ge=1, le=1024)
    kv_heads: int = Field(8, ge=1, le=1024)
    queries_per_kv_head: int = Field(8, ge=1, le=256)
    head_dim: int = Field(128, ge=1, le=8192)
    params: int = Field(32_800_000_000, ge=1, le=10**15)
    weights: str | None = Field(None, max_length=32)
    weight_bytes: int | None = Field(None, ge=0, le=MAX_BYTES)

    device: str = Field("H100-80G", max_length=64)
    memory_gib: float = Field(80.0, gt=0, le=65_536, allow_inf_nan=False)
    bandwidth_gbs: float = Field(3350.0, gt=0, le=1e6, allow_inf_nan=False)
    tflops: float = Field(989.0, gt=0, le=1e6, allow_inf_nan=False)
    tensor_parallel_size: int = Field(1, ge=1, le=1024)
    pipeline_parallel_size: int = Field(1, ge=1, le=1024)
    data_parallel_size: int = Field(1, ge=1, le=1024)

    gpu_memory_utilization: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    kv_cache_dtype: str = Field("auto", max_length=32)
    block_size: int = Field(16, ge=1, le=4096)
    max_model_len: int | None = Field(None, ge=1, le=MAX_TOKENS)
    activation_bytes: int | None = Field(None, ge=0, le=MAX_BYTES)
    reserve_bytes: int | None = Field(None, ge=0, le=MAX_BYTES)
    kv_cache_memory_bytes: int | None = Field(None, ge=1, le=MAX_BYTES)
    performance_mode: Literal["balanced", "throughput"] = "balanced"
    max_num_seqs: int | None = Field(None, ge=1, le=1 << 20)
    max_num_batched_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)

    conversation: int = Field(10_240, ge=1, le=MAX_TOKENS)
    efficiency: float = Field(1.0, ge=0.001, le=1, allow_inf_nan=False)

    usd_per_hour: float | None = Field(None, ge=0, le=100_000, allow_inf_nan=False)
    utilization: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    workload: str = Field("agentic", max_length=32)
    new_input: int = Field(500, ge=0, le=MAX_TOKENS)
    cached_input: int = Field(3500, ge=0, le=MAX_TOKENS)
    output: int = Field(500, ge=1, le=MAX_TOKENS)
    batch: int = Field(32, ge=1, le=1 << 20)
