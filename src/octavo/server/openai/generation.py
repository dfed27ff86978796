"""From prompts to one stream of numbered events: the one path that both APIs, streamed or not, take to the engine.

Every choice is timed, counted and, when nobody listens any more, aborted. An event that ends a choice without an answer
becomes an exception here, so that nothing above has to look for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from octavo.client.outputs import RequestOutput
from octavo.errors import CapacityError, DeadlineExceeded, EngineDead, InvalidRequest, RequestError, RequestFailed
from octavo.metrics.request_clock import RequestClock
from octavo.params import SamplingParams
from octavo.server.deadline import Deadline, events_until
from octavo.server.state import Generation, ServerState

Events = AsyncGenerator[tuple[int, RequestOutput], None]


class Prompt(msgspec.Struct, frozen=True):
    """`text` is what echo gives back before the answer."""

    token_ids: list[int]
    params: SamplingParams
    text: str = ""


class Header(msgspec.Struct, frozen=True):
    """What every chunk of one answer repeats. `with_usage`: chunks have a usage field, null in all but the last, unless
    `with_running_usage`."""

    id: str
    object: str
    model: str
    system_fingerprint: str
    with_usage: bool
    with_running_usage: bool = False
    created: int = msgspec.field(default_factory=lambda: int(time.time()))

    def chunk(self, choices: Sequence[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
        chunk = {
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
            "choices": choices,
        }
        return chunk | {"usage": usage} if self.with_usage else chunk


class Usage:
    """Counts the tokens of one answer from its events."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self.num_prompt_tokens = sum(len(prompt.token_ids) for prompt in prompts)
        self._n = prompts[0].params.n
        self._output: dict[int, int] = {}  # by choice
        self._reasoning: dict[int, int] = {}  # by choice
        self._cached: dict[int, int] = {}  # by prompt: its first choice's

    def see(self, choice: int, event: RequestOutput, num_reasoning_tokens: int = 0) -> None:
        self._output[choice] = event.num_output_tokens
        self._reasoning[choice] = num_reasoning_tokens
        if event.index == 0:
            self._cached[choice // self._n] = event.num_cached_tokens

    @property
    def num_output_tokens(self) -> int:
        return sum(self._output.values())

    @property
    def num_reasoning_tokens(self) -> int:
        return sum(self._reasoning.values())

    @property
    def num_cached_tokens(self) -> int:
        return sum(self._cached.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_output_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.num_cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.num_reasoning_tokens},
        }


async def generate(
    state: ServerState,
    prompts: Sequence[Prompt],
    *,
    request_id: str,
    cache_salt: str,
    tenant: str,
    priority: int,
    arrival_s: float,
    deadline: Deadline | None,
    constraint_field: str | None = None,
) -> Events:
    """Yield (choice, event) of all prompts, interleaved; choice j of prompt i has number i * n + j.

    Raises CapacityError and RequestError before the first event, EngineError and DeadlineExceeded at any time, and InvalidRequest when an
    answer cannot match what it must. Closing it aborts what is
    unfinished. `arrival_s` is in monotonic seconds, `constraint_field` the field of the request that says what an answer must match.
    """
    metrics, n = state.metrics, prompts[0].params.n
    clocks: list[RequestClock] = []
    try:
        async with AsyncExitStack() as opened:
            generations = []
            with state.share.claiming:
                engine = state.admit(n * len(prompts))  # asked again: others came while this one was read
                for prompt in prompts:
                    clocks += metrics.start_request(n, prompt.params.max_tokens or 0, arrival_s)
                for index, prompt in enumerate(prompts):
                    name = request_id if len(prompts) == 1 else f"{request_id}-{index}"
                    generation = engine.generate(
                        prompt.token_ids, prompt.params, request_id=name, cache_salt=cache_salt, tenant=tenant, priority=priority
                    )
                    opened.push_async_callback(generation.aclose)
                    generations.append(generation)
            events = _merge(generations)
            async for index, event in events if deadline is None else events_until(deadline, events):
                choice = index * n + event.index
                if event.begun_s is not None:
                    clocks[choice].begin(event.begun_s)
                if event.token_ids and event.num_output_tokens == len(event.token_ids):
                    state.drained_tokens.count(event.num_prompt_tokens)
                clocks[choice].tokens(len(event.token_ids), event.num_prompt_tokens, event.num_cached_tokens, event.num_loaded_tokens)
                if event.finish_reason is not None:
                    clocks[choice].end(event.finish_reason, event.num_preemptions)
                _raise_failure(event, constraint_field, is_paused=engine.is_paused)
                yield choice, event
    except RequestError:  # the engine's front does not take it
        for clock in clocks:
            clock.end("error")
        raise
    except DeadlineExceeded:
        metrics.count("requests_expired", 1)
        raise
    finally:
        if clocks:
            state.drained_answers.count(len(clocks))
        for clock in clocks:
            clock.end("abort")


async def _merge(generations: Sequence[Generation]) -> Events:
    """Yield (index of generation, event) as they come."""
    if len(generations) == 1:
        async for event in generations[0]:
            yield 0, event
        return
    waiting = {asyncio.ensure_future(anext(generation, None)): index for index, generation in enumerate(generations)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index = waiting.pop(task)
                next_event = task.result()
                if next_event is not None:
                    waiting[asyncio.ensure_future(anext(generations[index], None))] = index
                    yield index, next_event
    finally:
        for task in waiting:
            task.cancel()


def _raise_failure(event: RequestOutput, constraint_field: str | None, *, is_paused: bool) -> None:
    if event.error_code == "invalid_grammar":
        raise InvalidRequest(event.error or "the answer cannot match what it must", param=constraint_field)
    if event.error_code == "server_overloaded":
        raise CapacityError(event.error or "the request has waited too long")
    if event.finish_reason == "error":
        raise RequestFailed(event.error or "the engine failed this request")
    if event.finish_reason == "abort" and is_paused:
        raise CapacityError("the engine has been paused, which ended this request; try again later", code="engine_paused")
    if event.finish_reason == "abort":
        raise EngineDead("the server is shutting down; the answer is not whole", code="server_draining")
