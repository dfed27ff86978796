"""A load test of any OpenAI-compatible server: sessions in, one record for each request out. Open loop (by arrival time),
closed loop (by --max-concurrency), or both.

What the prefix cache did is asked of the server and reported: a figure from a warm cache must not pass for one from a cold one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from octavo.bench.datasets import Session, Turn
from octavo.bench.http_stream import Answer, Target, fetch, stream_answer
from octavo.errors import EngineError, RequestError

READY_POLL_S = 0.1
_HITS = re.compile(rb"^vllm:prefix_cache_(hits|queries)_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Api:
    """`backend` openai: /v1/completions, openai-chat: /v1/chat/completions. `extra` is merged into every body."""

    target: Target
    backend: str
    model: str
    ignore_eos: bool
    extra: dict[str, Any]

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.backend == "openai-chat" else "/v1/completions"

    def body(self, said: Sequence[tuple[str, str]], turn: Turn) -> dict[str, Any]:
        """`said`: the (question, answer) pairs that went before in this session."""
        if self.backend == "openai-chat":
            messages = [{"role": role, "content": text} for pair in said for role, text in zip(("user", "assistant"), pair, strict=True)]
            asked: dict[str, Any] = {
                "messages": [*messages, {"role": "user", "content": turn.prompt}],
                "max_completion_tokens": turn.output_len,
            }
        else:
            asked = {"prompt": "".join(map("".join, said)) + turn.prompt, "max_tokens": turn.output_len}
        always = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.0}
        return asked | always | ({"ignore_eos": True} if self.ignore_eos else {}) | self.extra


@dataclass(frozen=True)
class Record:
    """One request. `start_s` counts from the start of the run, `input_len` what the server says it was given."""

    start_s: float
    input_len: int
    answer: Answer

    @property
    def is_whole(self) -> bool:
        return self.answer.error is None

    @property
    def tpot_s(self) -> float | None:
        """Mean time of a token after the first; None for an answer of one token."""
        count = self.answer.num_output_tokens
        return (self.answer.latency_s - self.answer.ttft_s) / (count - 1) if count > 1 else None


@dataclass
class Run:
    """`prefix_cache`: tokens (found, looked up) during the run, None where the server does not tell."""

    records: list[Record] = field(default_factory=list)
    duration_s: float = 0.0
    prefix_cache: tuple[int, int] | None = None


async def run_load(
    api: Api, sessions: Sequence[Session], arrivals: Sequence[float], max_concurrency: int | None, on_answer: Callable[[Record], object]
) -> Run:
    """Send every session at its arrival time, at most `max_concurrency` at once, and return all records in order of sending."""
    run = Run()
    places = asyncio.Semaphore(max_concurrency or len(sessions) or 1)
    before = await prefix_cache_counts(api.target)
    started_s = time.perf_counter()

    async def talk(session: Session, arrival_s: float) -> None:
        await asyncio.sleep(max(0.0, arrival_s - (time.perf_counter() - started_s)))
        async with places:
            said: list[tuple[str, str]] = []
            for turn in session.turns:
                sent_s = time.perf_counter() - started_s
                answer = await stream_answer(api.target, api.path, api.body(said, turn))
                record = Record(sent_s, answer.num_input_tokens or turn.input_len, answer)
                run.records.append(record)
                on_answer(record)
                if answer.error is not None:
                    return
                said.append((turn.prompt, answer.text))

    await asyncio.gather(*(talk(session, arrival_s) for session, arrival_s in zip(sessions, arrivals, strict=True)))
    run.duration_s = time.perf_counter() - started_s
    run.records.sort(key=lambda record: record.start_s)
    after = await prefix_cache_counts(api.target)
    if before is not None and after is not None:
        run.prefix_cache = after[0] - before[0], after[1] - before[1]
    return run


async def wait_ready(target: Target, timeout_s: float) -> None:
    """Return when the server's /health answers 200. Raises EngineError after `timeout_s`; 0: ask once."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            if (await fetch(target, "GET", "/health"))[0] == 200:
                return
        except (OSError, ValueError, IndexError):
            pass
        if time.monotonic() >= deadline_s:
            raise EngineError(f"no server is ready at {target.host}:{target.port}; start one, or give --ready-check-timeout-sec")
        await asyncio.sleep(READY_POLL_S)


async def first_model(target: Target) -> str:
    """Return the name of the first model that the server offers. Raises RequestError."""
    status, body = await fetch(target, "GET", "/v1/models")
    if status != 200:
        raise RequestError(
            f"the server does not list its models ({status}); give --model, and --header or OCTAVO_API_KEY if it wants a key"
        )
    return str(orjson.loads(body)["data"][0]["id"])


async def reset_prefix_cache(target: Target) -> None:
    """Have the server forget its prefix cache. Raises RequestError when it will not."""
    status, body = await fetch(target, "POST", "/reset_prefix_cache")
    if status != 200:
        raise RequestError(f"the server did not reset its prefix cache ({status}): {body[:200].decode('utf-8', 'replace')}")


async def prefix_cache_counts(target: Target) -> tuple[int, int] | None:
    """Return (tokens found, tokens looked up) since the server started; None where /metrics does not say."""
    try:
        status, body = await fetch(target, "GET", "/metrics")
    except (OSError, ValueError, IndexError):
        return None
    counts = {name: float(value) for name, value in _HITS.findall(body)}
    return (int(counts[b"hits"]), int(counts[b"queries"])) if status == 200 and len(counts) == 2 else None
