"""Events as the body wants them: under its salt, and with stream_interval several tokens in one, but that the first token
and the last event of a choice are never kept waiting."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from msgspec.structs import replace
from starlette.requests import Request

from octavo.client.outputs import RequestOutput
from octavo.server.deadline import deadline_of
from octavo.server.openai.generation import Events, Prompt, generate
from octavo.server.openai.schemas import RequestBody
from octavo.server.state import ServerState

T = TypeVar("T")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # what 64 bits hold


def salted_events(request: Request, body: RequestBody, prompts: Sequence[Prompt], name: str) -> Events:
    """Return the events of all prompts under the request id `name`, salted as the body says. Raises as generate() does.

    The prefix cache's salt is the tenant's, which nobody can leave, with the request's own behind it.
    """
    tenant = request.state.cache_salt
    salt = tenant if body.cache_salt is None else f"{tenant}\0{body.cache_salt}"  # neither holds a NUL
    state: ServerState = request.app.state.server
    return generate(
        state,
        prompts,
        request_id=name,
        cache_salt=salt,
        tenant=tenant,
        priority=_priority(request, body),
        arrival_s=request.state.arrival_s,
        deadline=deadline_of(request),
        constraint_field=_constraint_field(body),
    )


def _constraint_field(body: RequestBody) -> str:
    """Return the field that says what an answer must match, if any does."""
    return next((name for name in ("structured_outputs", "response_format") if getattr(body, name) is not None), "tools")


def _priority(request: Request, body: RequestBody) -> int:
    """Return the header X-Vllm-Priority, which wins, if it is an integer; else what the body says."""
    header = request.headers.get("x-vllm-priority", "")
    if _INTEGER.fullmatch(header):
        return int(header)
    return body.priority or 0


def paced_events(request: Request, body: RequestBody, prompts: Sequence[Prompt], name: str) -> Events:
    """Return the same events, those of a choice joined until they bring `stream_interval` tokens."""
    state: ServerState = request.app.state.server
    interval = body.stream_interval or state.config.stream_interval
    events = salted_events(request, body, prompts, name)
    return events if interval == 1 else paced(events, interval, joined_events, lambda event: event)


async def paced(
    pieces: AsyncGenerator[tuple[int, T], None], interval: int, join: Callable[[T, T], T], event_of: Callable[[T], RequestOutput]
) -> AsyncGenerator[tuple[int, T], None]:
    """Yield the same (choice, piece), but those of a choice joined until they bring `interval` tokens."""
    held: dict[int, T] = {}
    begun: set[int] = set()
    async with aclosing(pieces):
        async for choice, piece in pieces:
            joined = join(held.pop(choice), piece) if choice in held else piece
            event = event_of(joined)
            if choice not in begun or len(event.token_ids) >= interval or event.finish_reason is not None:
                if event.token_ids:
                    begun.add(choice)
                yield choice, joined
            else:
                held[choice] = joined


def joined_events(first: RequestOutput, then: RequestOutput) -> RequestOutput:
    return replace(
        then,
        text=first.text + then.text,
        token_ids=first.token_ids + then.token_ids,
        logprobs=_both(first.logprobs, then.logprobs),
        prompt_logprobs=_both(first.prompt_logprobs, then.prompt_logprobs),
        begun_s=then.begun_s if first.begun_s is None else first.begun_s,
    )


def _both(first: list[T] | None, then: list[T] | None) -> list[T] | None:
    return then if first is None else first if then is None else first + then
