"""Benchmarks measure what they say, on an engine that only counts."""

from types import SimpleNamespace

import pytest

from octavo.bench.engine_bench import measure_latency, measure_throughput
from octavo.bench.workload import Workload, percentile


class Counting:
    def __init__(self):
        self.calls = []

    def get_tokenizer(self):
        return SimpleNamespace(vocab_size=100)

    def generate(self, prompts, sampling_params, *, use_tqdm=True):
        self.calls.append((prompts, sampling_params))
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=[0] * sampling_params.max_tokens)]) for _ in prompts]


def test_latency_leaves_warm_up_out():
    llm, beats = Counting(), []
    result = measure_latency(llm, Workload(2, 3, 4), num_warmups=2, num_iterations=5, seed=0, on_iteration=lambda: beats.append(1))
    assert len(llm.calls) == len(beats) == 7
    assert len(result["latencies"]) == 5
    assert result["avg_latency"] == pytest.approx(sum(result["latencies"]) / 5)
    assert list(result["percentiles"]) == ["10", "25", "50", "75", "90", "99"]


def test_throughput_counts_prompt_and_output_tokens():
    result = measure_throughput(Counting(), Workload(10, 3, 4), seed=0)
    assert (result["num_requests"], result["total_num_tokens"]) == (10, 70)
    assert result["tokens_per_second"] == pytest.approx(70 / result["elapsed_time"])


def test_no_prompt_comes_twice_and_answers_have_their_length():
    llm = Counting()
    measure_latency(llm, Workload(4, 16, 4), num_warmups=1, num_iterations=3, seed=0, on_iteration=lambda: None)
    prompts = [tuple(prompt) for call in llm.calls for prompt in call[0]]
    assert len(set(prompts)) == 16
    assert all(call[1].ignore_eos and call[1].max_tokens == 4 for call in llm.calls)


@pytest.mark.parametrize(("percent", "value"), [(0, 1.0), (50, 2.5), (100, 4.0), (90, 3.7)])
def test_percentiles_lie_between_neighbours(percent, value):
    assert percentile([4.0, 1.0, 3.0, 2.0], percent) == pytest.approx(value)
