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
from typing import TypeVar

import msgspec
from starlette.requests import Request

from octavo.errors import DeadlineExceeded, InvalidRequest
from octavo.server.state import ServerState

HEADER = "x-request-timeout-ms"
MAX_TIMEOUT_MS = 86_400_000  # a day

T = TypeVar("T")
_DIGITS = re.compile(r"[0-9]{1,8}")


class Deadline(msgspec.Struct, frozen=True):
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
    alarm = _Alarm(deadline)
    try:
        async with aclosing(events):
            while True:
                with alarm:
                    event = await anext(events, None)
                if event is None:
                    return
                yield event
    finally:
        alarm.stop()


async def in_time(deadline: Deadline, work: Awaitable[T]) -> T:
    """Return what `work` returns, if that comes in time; cancel it and raise DeadlineExceeded else."""
    alarm = _Alarm(deadline)
    try:
        with alarm:
            return await work
    finally:
        alarm.stop()


class _Alarm:
    """One timer for all the waits up to a deadline. `with alarm:` around a wait; no other code is interrupted.

    Raises DeadlineExceeded in place of a wait that the deadline finds, or that begins after it."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._waiting: asyncio.Task[object] | None = None
        self._has_rung = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(loop.time() + deadline.at_s - time.monotonic(), self._ring)

    def stop(self) -> None:
        self._timer.cancel()

    def __enter__(self) -> None:
        if self._has_rung or time.monotonic() >= self._deadline.at_s:
            raise self._deadline.error()
        self._waiting = asyncio.current_task()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task, self._waiting = self._waiting, None
        if self._has_rung and task is not None and task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise self._deadline.error() from None

    def _ring(self) -> None:
        self._has_rung = True
        if self._waiting is not None:
            self._waiting.cancel()
