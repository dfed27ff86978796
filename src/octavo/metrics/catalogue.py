"""The metrics of the engine and of its front end, one line each: the names are an interface that dashboards rely on.

Names, types and buckets are those that vLLM's dashboards know; the prefix is put in front by the recorder. Counters
are exposed with `_total`. Every metric has the labels model_name and engine, and only labels from closed sets.

The ledger of the front end: requests_accepted = request_success, all reasons together, + requests_in_flight, at any time.
"stop" and "length" are finished, "error" failed, "abort" cancelled: by the caller, by its deadline or by a shutdown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

FINISH_REASONS = ("stop", "length", "abort", "error")
WAITING_REASONS = ("capacity", "deferred")
PROMPT_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
LOSS_REASONS = ("evicted", "backlog", "unwritable", "damaged")

PARSER_MODES = ("streaming", "non_streaming")
PARSER_OUTCOMES = ("tool_call", "no_tool_call")
RequestType = Literal["chat_completions", "responses", "other"]
REQUEST_TYPES: tuple[RequestType, ...] = get_args(RequestType)

FIRST_TOKEN_S = (.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)  # fmt: skip
BETWEEN_TOKENS_S = (.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)  # fmt: skip
REQUEST_S = (.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)  # fmt: skip
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CHOICES = (1, 2, 5, 10, 20)
IN_POOL_S = (.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800)  # fmt: skip
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)


class Metric(msgspec.Struct, frozen=True):
    """`labels`: beside model_name and engine, each with all its values. `buckets`: upper bounds of a histogram; "tokens" stands
    for 1, 2, 5, 10, 20 ... up to the model's context."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    buckets: tuple[float, ...] | Literal["tokens"] = ()


METRICS: tuple[Metric, ...] = (
    Metric("num_requests_running", "gauge", "Requests in the engine's batch."),
    Metric("num_requests_waiting", "gauge", "Requests waiting for a place in the batch."),
    Metric(
        "num_requests_waiting_by_reason",
        "gauge",
        "The same by what they wait for: a place, or KV that is read back from beyond the pool.",
        {"reason": WAITING_REASONS},
    ),
    Metric("kv_cache_usage_perc", "gauge", "Share of KV blocks in use, 0 to 1."),
    Metric("prefix_cache_queries", "counter", "Prompt tokens looked up in the prefix cache."),
    Metric("prefix_cache_hits", "counter", "Prompt tokens found in the prefix cache, in the pool."),
    Metric("external_prefix_cache_queries", "counter", "Prompt tokens looked up beyond the pool, where there is something beyond it."),
    Metric("external_prefix_cache_hits", "counter", "Prompt tokens read back from beyond the pool."),
    Metric("kv_tier_bytes", "gauge", "Bytes of KV held beyond the pool, in host memory or on disk."),
    Metric("kv_tier_stored_bytes", "counter", "Bytes of KV copied out of the pool."),
    Metric("kv_tier_loaded_bytes", "counter", "Bytes of KV read back for requests."),
    Metric(
        "kv_tier_lost_blocks",
        "counter",
        "Blocks that newer ones pushed out, that were not copied out because too much waited, not written, or found changed.",
        {"reason": LOSS_REASONS},
    ),
    Metric("kv_block_lifetime_seconds", "histogram", "From the taking of a sampled KV block to the next.", buckets=IN_POOL_S),
    Metric("kv_block_idle_before_evict_seconds", "histogram", "From its last use to its next taking.", buckets=IN_POOL_S),
    Metric("kv_block_reuse_gap_seconds", "histogram", "Between two uses: being taken, and each prefix hit.", buckets=IN_POOL_S),
    Metric("num_preemptions", "counter", "Requests put back to waiting to free KV blocks."),
    Metric("prompt_tokens", "counter", "Prompt tokens of requests that have begun to answer, cached ones included."),
    Metric("prompt_tokens_cached", "counter", "Of those, tokens found in the prefix cache or beyond the pool."),
    Metric("prompt_tokens_by_source", "counter", "The same by where their KV came from.", {"source": PROMPT_SOURCES}),
    Metric("generation_tokens", "counter", "Tokens generated."),
    Metric("request_success", "counter", "Requests ended, by reason.", {"finished_reason": FINISH_REASONS}),
    Metric("corrupted_requests", "counter", "Requests whose logits held NaN; they are ended as failed."),
    Metric("requests_accepted", "counter", "Answers (choices) taken on."),
    Metric("requests_in_flight", "gauge", "Answers taken on that have not ended."),
    Metric("requests_refused", "counter", "Requests answered 503 because too many were unfinished, or too many tokens waited."),
    Metric("requests_expired", "counter", "Requests answered 504 because their deadline passed."),
    Metric(
        "tool_call_parser_invocations",
        "counter",
        'Answers looked through for tool calls, at their end; messages are "other".',
        {"mode": PARSER_MODES, "outcome": PARSER_OUTCOMES, "request_type": REQUEST_TYPES},
    ),
    Metric("iteration_tokens_total", "histogram", "Prompt tokens computed and tokens generated in one step.", buckets=STEP_TOKENS),
    Metric("estimated_flops_per_gpu", "counter", "Operations that steps had to do at least (--enable-mfu-metrics)."),
    Metric("estimated_read_bytes_per_gpu", "counter", "Bytes that they had to read: weights once a step, KV."),
    Metric("estimated_write_bytes_per_gpu", "counter", "Bytes of KV that they had to write."),
    Metric("time_to_first_token_seconds", "histogram", "Arrival to first token.", buckets=FIRST_TOKEN_S),
    Metric("inter_token_latency_seconds", "histogram", "Time between two outputs of a request.", buckets=BETWEEN_TOKENS_S),
    Metric(
        "request_time_per_output_token_seconds", "histogram", "A request's mean time per token after the first.", buckets=BETWEEN_TOKENS_S
    ),
    Metric("e2e_request_latency_seconds", "histogram", "Arrival to last token.", buckets=REQUEST_S),
    Metric("request_queue_time_seconds", "histogram", "Arrival at the engine to the planning of the first step.", buckets=REQUEST_S),
    Metric("request_prefill_time_seconds", "histogram", "First step to first token.", buckets=REQUEST_S),
    Metric("request_decode_time_seconds", "histogram", "First token to last token.", buckets=REQUEST_S),
    Metric("request_inference_time_seconds", "histogram", "First step to last token.", buckets=REQUEST_S),
    Metric("request_prompt_tokens", "histogram", "Prompt tokens of a request.", buckets="tokens"),
    Metric("request_prefill_kv_computed_tokens", "histogram", "Of those, tokens not found in the prefix cache.", buckets="tokens"),
    Metric("request_generation_tokens", "histogram", "Tokens generated for a request.", buckets="tokens"),
    Metric("request_max_num_generation_tokens", "histogram", "The longest of a request's n answers, in tokens.", buckets="tokens"),
    Metric("request_num_preemptions", "histogram", "How often a request lost its place in the batch.", buckets=PREEMPTIONS),
    Metric("request_params_n", "histogram", "The n that requests ask for.", buckets=CHOICES),
    Metric("request_params_max_tokens", "histogram", "The most tokens that requests allow.", buckets="tokens"),
)


def token_buckets(max_model_len: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50 ... up to `max_model_len`."""
    bounds = [digit * 10**power for power in range(10) for digit in (1, 2, 5)]
    return tuple(float(bound) for bound in bounds if bound <= max_model_len)


def metrics_markdown() -> str:
    """Return the table for the docs, names as Prometheus shows them with the usual prefix."""
    lines = ["| metric | type | labels, buckets | meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        suffix = "_total" if metric.kind == "counter" else ""
        more = [f"{label}: {', '.join(values)}" for label, values in metric.labels.items()]
        if metric.buckets:
            more.append(
                "1, 2, 5, 10 ... up to the context" if metric.buckets == "tokens" else ", ".join(f"{bound:g}" for bound in metric.buckets)
            )
        lines.append(f"| `vllm:{metric.name}{suffix}` | {metric.kind} | {'; '.join(more)} | {metric.help} |")
    return "\n".join(lines) + "\n"
