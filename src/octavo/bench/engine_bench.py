"""Latency of one batch and throughput of many requests, on an engine in this process: no server, no socket.

Result names are those of vLLM's `bench latency` and `bench throughput`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Protocol

from octavo.bench.workload import Workload, percentile, random_prompts
from octavo.params import SamplingParams

PERCENTILES = (10, 25, 50, 75, 90, 99)


class Generator(Protocol):
    """What is measured: client.llm.LLM."""

    def generate(self, prompts: Any, sampling_params: SamplingParams, *, use_tqdm: bool = ...) -> list[Any]: ...
    def get_tokenizer(self) -> Any: ...


def measure_latency(
    llm: Generator, workload: Workload, *, num_warmups: int, num_iterations: int, seed: int, on_iteration: Callable[[], object]
) -> dict[str, Any]:
    """Return avg_latency, latencies and percentiles, in seconds, of answering the whole batch."""
    rng = random.Random(seed)
    seconds = []
    for _ in range(num_warmups + num_iterations):
        seconds.append(_timed(llm, workload, rng, use_tqdm=False)[0])
        on_iteration()
    latencies = seconds[num_warmups:]
    return {
        "avg_latency": sum(latencies) / len(latencies),
        "latencies": latencies,
        "percentiles": {str(percent): percentile(latencies, percent) for percent in PERCENTILES},
    }


def measure_throughput(llm: Generator, workload: Workload, *, seed: int) -> dict[str, Any]:
    """Return elapsed_time, num_requests, total_num_tokens, requests_per_second, tokens_per_second and output_tokens_per_second."""
    rng = random.Random(seed)
    warm_up = Workload(min(workload.num_prompts, 4), workload.input_len, min(workload.output_len, 8))
    _timed(llm, warm_up, rng, use_tqdm=False)
    seconds, num_output_tokens = _timed(llm, workload, rng, use_tqdm=True)
    total = workload.num_prompts * workload.input_len + num_output_tokens
    return {
        "elapsed_time": seconds,
        "num_requests": workload.num_prompts,
        "total_num_tokens": total,
        "requests_per_second": workload.num_prompts / seconds,
        "tokens_per_second": total / seconds,
        "output_tokens_per_second": num_output_tokens / seconds,
    }


def _timed(llm: Generator, workload: Workload, rng: random.Random, *, use_tqdm: bool) -> tuple[float, int]:
    """Return the seconds that new random prompts take, and the number of tokens generated."""
    prompts = random_prompts(workload, llm.get_tokenizer().vocab_size, rng)
    params = SamplingParams(max_tokens=workload.output_len, ignore_eos=True, temperature=0.0)
    started_s = time.perf_counter()
    answers = llm.generate(prompts, params, use_tqdm=use_tqdm)
    seconds = time.perf_counter() - started_s
    return seconds, sum(len(output.token_ids) for answer in answers for output in answer.outputs)
