"""When an answer must be there: what the caller asks for in X-Request-Timeout-Ms, and at most the operator's --request-timeout.

Both count from the arrival of the request's headers. After the deadline there is one error, DeadlineExceeded, and no more events;
the engine gives up the request before its next step. It is looked at whenever the next event is asked for: an event that a client is
slow to take is not called back.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import Request

from octavo.errors import DeadlineExceeded, InvalidRequest
from octavo.server.state import ServerState

HEADER = "x-request-timeout-ms"
MAX_TIMEOUT_MS = 86_400_000  # a day

T = TypeVar("T")
_DIGITS = re.compile(r"[0-9]{1,8}")


@dataclass(frozen=True)
class Deadline:
    """`at_s` in monotonic seconds, `timeout_s` after the request's arrival."""

    at_s: float
    timeout_s: float

    def error(self) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"the answer was not whole {1000 * self.timeout_s:,.0f} ms after the request; raise {HEADER}, or ask for fewer tokens",
            param=HEADER,
        )


def deadline_of(request: Request) -> Deadline | None:
    """Return the request's deadline, if it has one. Raises InvalidRequest."""
    state: ServerState = request.app.state.server
    most_s, asked = state.config.request_timeout_s, request.headers.get(HEADER)
    if asked is not None:
        if not _DIGITS.fullmatch(asked) or not 1 <= int(asked) <= MAX_TIMEOUT_MS:
            raise InvalidRequest(f"the header {HEADER} must be a whole number of milliseconds in 1..{MAX_TIMEOUT_MS:,}", param=HEADER)
        asked_s = int(asked) / 1000
        most_s = asked_s if most_s is None else min(most_s, asked_s)
    return None if most_s is None else Deadline(request.state.arrival_s + most_s, most_s)


async def events_until(deadline: Deadline, events: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield the events that come in time. Raises DeadlineExceeded; `events` are closed whatever happens."""
    async with aclosing(events):
        while True:
            event = await in_time(deadline, anext(events, None))
            if event is None:
                return
            yield event


async def in_time(deadline: Deadline, work: Awaitable[T]) -> T:
    """Return what `work` returns, if that comes in time; cancel it and raise DeadlineExceeded else."""
    left_s = deadline.at_s - time.monotonic()
    try:
        async with asyncio.timeout(left_s) as waiting:
            return await work
    except TimeoutError:
        if waiting.expired():
            raise deadline.error() from None
        raise
