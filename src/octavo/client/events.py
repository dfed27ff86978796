"""`Events`: what a request gives, event by event, to whoever reads it; written to as the engine's deltas come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from octavo.client.outputs import RequestOutput
from octavo.client.pooling import PooledEvent

Event = TypeVar("Event", RequestOutput, PooledEvent)


class Events(AsyncIterator[Event], Generic[Event]):
    """The events of one request, all choices interleaved. Read it to its end, or aclose() it: that aborts the request."""

    def __init__(self, open_choices: int, on_close: Callable[[], None]) -> None:
        self._open_choices = open_choices
        self._on_close = on_close
        self._events: deque[Event] = deque()
        self._arrival: asyncio.Future[None] | None = None  # what the reader waits for

    async def __anext__(self) -> Event:
        while not self._events:
            if self._open_choices == 0:
                raise StopAsyncIteration
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self._events.popleft()

    async def aclose(self) -> None:
        """Abort what is unfinished; idempotent, and nothing to do after the last event."""
        self._on_close()

    def put(self, event: Event) -> None:
        self._events.append(event)
        self._open_choices -= event.finish_reason is not None
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)


Generation = Events[RequestOutput]
