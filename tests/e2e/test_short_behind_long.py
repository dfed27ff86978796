"""A prompt of 7,000 tokens on the default model, behind it a short one, beside it streams: nobody is frozen."""

import asyncio
import time
from itertools import pairwise
from statistics import median

import httpx
import pytest
from tests.fakes.served import serve
from tests.real_models import path_or_skip

pytestmark = [pytest.mark.model, pytest.mark.slow]
MODEL = "smollm2-135m-instruct"
STEP_MS = 200


def prompt(seed, num_tokens):
    return [(seed * 7919 + 31 * position) % 40_000 + 100 for position in range(num_tokens)]


class Stream:
    """One streamed answer: when it was asked for, and when each token came."""

    def __init__(self, client, seed, num_prompt, max_tokens):
        body = {"model": MODEL, "prompt": prompt(seed, num_prompt), "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        self.sent_s = time.perf_counter()
        self.times_s = []
        self.task = asyncio.create_task(self._read(client, body | {"stream": True}))

    async def _read(self, client, body):
        async with client.stream("POST", "/v1/completions", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    self.times_s.append(time.perf_counter())

    @property
    def first_token_s(self):
        return self.times_s[0] - self.sent_s


async def behind_a_long_prompt(url):
    async with httpx.AsyncClient(base_url=url, timeout=300) as client:
        streams = [Stream(client, seed, 20, 4000) for seed in (1, 2)]
        while min(len(stream.times_s) for stream in streams) < 20:
            await asyncio.sleep(0.05)
        long = Stream(client, 3, 7000, 1)
        await asyncio.sleep(0.5)
        short = Stream(client, 4, 40, 8)
        await asyncio.gather(short.task, long.task)
        for stream in streams:
            stream.task.cancel()
        gaps = [then - first for stream in streams for first, then in pairwise(stream.times_s) if long.sent_s < first < long.times_s[0]]
        return long.first_token_s, short.first_token_s, gaps


def test_a_short_prompt_is_answered_long_before_the_long_one_ahead_of_it_and_streams_keep_their_pace():
    path_or_skip(MODEL)
    with serve(MODEL, "--log-level", "error", "--mixed-step-ms", STEP_MS) as url:
        long_s, short_s, gaps = asyncio.run(behind_a_long_prompt(url))
    print(f"7,000 tokens {long_s:.1f} s; short behind them {short_s:.2f} s; gap of streams {median(gaps):.3f} s, longest {max(gaps):.2f} s")
    assert short_s < long_s / 4
    assert median(gaps) < 2 * STEP_MS / 1000
