"""The metrics of the engine, one line each: the names are an interface that dashboards rely on.

Names, types and buckets are those that vLLM's dashboards know; the prefix is put in front by the recorder. Counters
are exposed with `_total`. Every metric has the labels model_name and engine, and only labels from closed sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FINISH_REASONS = ("stop", "length", "abort", "error")

FIRST_TOKEN_S = (.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)  # fmt: skip
BETWEEN_TOKENS_S = (.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)  # fmt: skip
REQUEST_S = (.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)  # fmt: skip
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CHOICES = (1, 2, 5, 10, 20)


@dataclass(frozen=True)
class Metric:
    """`buckets`: upper bounds of a histogram; "tokens" stands for 1, 2, 5, 10, 20 ... up to the model's context."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] | Literal["tokens"] = ()


METRICS: tuple[Metric, ...] = (
    Metric("num_requests_running", "gauge", "Requests in the engine's batch."),
    Metric("num_requests_waiting", "gauge", "Requests waiting for a place in the batch."),
    Metric("kv_cache_usage_perc", "gauge", "Share of KV blocks in use, 0 to 1."),
    Metric("prefix_cache_queries", "counter", "Prompt tokens looked up in the prefix cache."),
    Metric("prefix_cache_hits", "counter", "Prompt tokens found in the prefix cache."),
    Metric("num_preemptions", "counter", "Requests put back to waiting to free KV blocks."),
    Metric("prompt_tokens", "counter", "Prompt tokens of requests that have begun to answer, cached ones included."),
    Metric("prompt_tokens_cached", "counter", "Of those, tokens found in the prefix cache."),
    Metric("generation_tokens", "counter", "Tokens generated."),
    Metric("request_success", "counter", "Requests ended, by reason.", ("finished_reason",)),
    Metric("corrupted_requests", "counter", "Requests whose logits held NaN."),
    Metric("iteration_tokens_total", "histogram", "Tokens computed in one step.", buckets=STEP_TOKENS),
    Metric("time_to_first_token_seconds", "histogram", "Arrival to first token.", buckets=FIRST_TOKEN_S),
    Metric("inter_token_latency_seconds", "histogram", "Time between two outputs of a request.", buckets=BETWEEN_TOKENS_S),
    Metric(
        "request_time_per_output_token_seconds", "histogram", "A request's mean time per token after the first.", buckets=BETWEEN_TOKENS_S
    ),
    Metric("e2e_request_latency_seconds", "histogram", "Arrival to last token.", buckets=REQUEST_S),
    Metric("request_decode_time_seconds", "histogram", "First token to last token.", buckets=REQUEST_S),
    Metric("request_prompt_tokens", "histogram", "Prompt tokens of a request.", buckets="tokens"),
    Metric("request_generation_tokens", "histogram", "Tokens generated for a request.", buckets="tokens"),
    Metric("request_params_n", "histogram", "The n that requests ask for.", buckets=CHOICES),
    Metric("request_params_max_tokens", "histogram", "The most tokens that requests allow.", buckets="tokens"),
)


def token_buckets(max_model_len: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50 ... up to `max_model_len`."""
    bounds = [digit * 10**power for power in range(10) for digit in (1, 2, 5)]
    return tuple(float(bound) for bound in bounds if bound <= max_model_len)
