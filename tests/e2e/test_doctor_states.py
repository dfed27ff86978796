"""Real servers driven into the states that the doctor names; and one that is well, of which it finds nothing."""

import asyncio
import itertools
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.test_serve import model as tiny  # noqa: F401  a folder with a tiny random model
from tests.fakes.crowd import Crowd
from tests.fakes.served import serve
from tests.fakes.tiny_llama import HIDDEN

from octavo.doctor.diagnosis import diagnose
from octavo.doctor.observation import Settings
from octavo.doctor.visit import visit

SMOLLM2 = "smollm2-135m-instruct"
WINDOW_S = 4.0
slow = pytest.mark.slow
real = pytest.mark.model


def prompts(length, *, vocab=30000, seed=1):
    """Return a function that gives a new random prompt of `length` tokens each time."""
    rng = random.Random(seed)
    return lambda: [rng.randrange(300 if vocab > 300 else 1, vocab) for _ in range(length)]


def examine(flags, drive, stated=None, window_s=WINDOW_S, warm_up_s=1.0, fails=False):
    """Return the findings, by name, about a server with `flags` while `drive(crowd)` has sent its clients."""

    async def observe(url):
        crowd = Crowd(url, Path(flags[0]).name)
        try:
            await drive(crowd)
            await asyncio.sleep(warm_up_s)
            return await visit(url, {}, stated or Settings(), window_s)
        finally:
            await crowd.leave()
            assert fails or not crowd.failures, crowd.failures[0]

    with serve(*flags) as url:
        seen = asyncio.run(observe(url))
    diagnosis = diagnose(seen)
    for finding in diagnosis.findings:
        print(finding.rule, *map(str, finding.evidence), finding.command, sep="\n    ")
    return {finding.rule: finding for finding in diagnosis.findings}


async def too_few_seats(crowd):
    crowd.add(8, prompts(16), 64)


async def large_requests(crowd):
    crowd.add(6, prompts(300), 24)


async def growing_answers(crowd):
    crowd.add(16, prompts(16, vocab=128), 200)


async def long_prompts_only(crowd):
    crowd.add(4, prompts(400), 1)


async def more_than_it_can(crowd):
    crowd.add_arrivals(30, prompts(16), 48)


async def a_crowd_at_the_door(crowd):
    crowd.add(12, prompts(16), 48)


async def prefixes_that_push_each_other_out(crowd):
    fixed = prompts(200, vocab=128)()
    for _ in range(8):
        await crowd.ask(fixed, 1)
    others = itertools.cycle([prompts(200, vocab=128, seed=seed)() for seed in range(10, 18)])
    crowd.add(1, lambda: next(others), 1)


async def long_prompts_among_answers(crowd):
    crowd.add(3, prompts(8), 400)
    crowd.add(1, prompts(1200), 1, pause_s=1.0)


@real
def test_a_narrow_batch_is_named_with_the_width_to_take():
    found = examine([SMOLLM2, "--max-num-seqs", "2"], too_few_seats)
    assert next(iter(found)) == "batch_width"
    assert found["batch_width"].command == f"octavo serve {SMOLLM2} --max-num-seqs 8"


@real
def test_a_full_pool_is_named():
    flags = [SMOLLM2, "--num-gpu-blocks-override", "40", "--max-model-len", "512"]
    found = examine(flags, large_requests)
    assert "kv_memory" in found
    assert "batch_width" not in found
    assert "--num-gpu-blocks-override 80" in found["kv_memory"].command


@real
def test_one_quiet_client_is_no_finding():
    async def one_client(crowd):
        crowd.add(1, prompts(16), 32, pause_s=0.2)

    assert set(examine([SMOLLM2], one_client)) == {"under_use"}


@slow
@real
def test_a_moderate_load_is_no_finding():
    async def some_clients(crowd):
        crowd.add(4, prompts(48), 32, pause_s=0.3)

    assert set(examine([SMOLLM2, "--max-num-seqs", "8"], some_clients)) <= {"under_use"}


@slow
def test_a_preemption_storm_is_named_first(tiny):  # noqa: F811
    found = examine([tiny, "--num-gpu-blocks-override", "33"], growing_answers)
    assert next(iter(found)) == "thrash"
    assert "--max-num-seqs 2" in found["thrash"].command


@slow
@real
def test_a_small_token_budget_is_named():
    found = examine([SMOLLM2, "--max-num-batched-tokens", "32", "--max-num-seqs", "8"], long_prompts_only)
    assert next(iter(found)) == "token_budget"
    assert "--max-num-batched-tokens 128" in found["token_budget"].command


@slow
@real
def test_a_growing_queue_is_named():
    assert "queue" in examine([SMOLLM2, "--max-num-seqs", "4"], more_than_it_can)


@slow
@real
def test_a_reached_admission_cap_is_named():
    found = examine([SMOLLM2, "--max-num-queued-reqs", "4"], a_crowd_at_the_door)
    assert "--max-num-queued-reqs 8" in found["queue"].command


def test_a_prefix_cache_that_forgets_is_named(tiny):  # noqa: F811
    found = examine([tiny, "--num-gpu-blocks-override", "33"], prefixes_that_push_each_other_out, window_s=2.0, warm_up_s=0.0)
    assert next(iter(found)) == "cache_churn"
    assert "--kv-offload-gib" in found["cache_churn"].command


@slow
@real
def test_stalls_by_long_prompts_are_named():
    found = examine([SMOLLM2], long_prompts_among_answers, window_s=8.0)
    assert "--mixed-step-ms" in found["long_prompt_stalls"].command


@slow
def test_a_front_end_that_cannot_keep_up_is_named(tiny):  # noqa: F811
    async def many_streams(crowd):
        for max_tokens in (70, 110, 160, 200):  # so that they do not all end, and rest, together
            crowd.add_readers(16, prompts(8, vocab=128)(), max_tokens, logprobs=5)

    assert next(iter(examine([tiny, "--max-num-seqs", "64"], many_streams, window_s=8.0))) == "front_end"


@slow
@real
def test_steps_that_read_as_much_as_the_memory_gives_are_named():
    async def some_answers(crowd):
        crowd.add(2, prompts(16), 200)

    stated = Settings(bandwidth=1e9)  # a device so slow that this machine is at its limit
    found = examine([SMOLLM2], some_answers, stated)
    assert "memory_bandwidth" in found
    assert found["memory_bandwidth"].command == f"octavo plan {SMOLLM2}"


@slow
def test_failing_requests_are_named_first(tiny, tmp_path):  # noqa: F811
    broken, token = Path(shutil.copytree(tiny, tmp_path / "broken")), 77
    with (broken / "model.safetensors").open("r+b") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        file.seek(8 + header_bytes + token * HIDDEN * 4)  # its embedding, in float32
        file.write(np.full(HIDDEN, np.nan, np.float32).tobytes())

    async def somebody(crowd):
        crowd.add(1, lambda: [token], 8, pause_s=0.2)

    assert next(iter(examine([broken], somebody, fails=True))) == "failures"


@slow
@real
def test_a_missed_objective_is_named():
    async def one_client(crowd):
        crowd.add(1, prompts(64), 16)

    assert set(examine([SMOLLM2], one_client, Settings(ttft_slo_s=0.001, itl_slo_s=0.001))) == {"slo"}
