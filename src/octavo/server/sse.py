"""Server-sent events, in the framing of one API: for OpenAI's chat `data: {json}` for each event and `data: [DONE]` last.

Nothing is sent until the first event is there, so that what fails before it is answered with its own status. After
that an error is one event, and the last one. While nothing is to be said a comment keeps
proxies from closing the connection. A client that does not read is dropped after WRITE_TIMEOUT_S.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.errors import OctavoError
from octavo.server.disconnect import ClientDisconnected, until_disconnect
from octavo.server.errors import error_object, internal_error

KEEP_ALIVE_S = 5.0
WRITE_TIMEOUT_S = 60.0

_log = logging.getLogger("octavo.server")
_START = {"type": "http.response.start", "status": 200}
_HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"))


@dataclass(frozen=True)
class Framing:
    """`is_named`: each event has its `type` as its name. `last` ends a stream that is whole. `error` is the event of a failure."""

    is_named: bool
    last: bytes
    error: Callable[[OctavoError], dict[str, Any]]

    def frame(self, event: dict[str, Any]) -> bytes:
        data = b"data: %b\n\n" % orjson.dumps(event)
        return b"event: %b\n%b" % (event["type"].encode(), data) if self.is_named else data


CHUNKS = Framing(is_named=False, last=b"data: [DONE]\n\n", error=error_object)


class EventStream(Response):
    """An ASGI answer that streams `events`; closes them when the client goes away."""

    def __init__(
        self, events: AsyncGenerator[dict[str, Any], None], headers: Mapping[str, str] | None = None, framing: Framing = CHUNKS
    ) -> None:
        self._events = events
        self._framing = framing
        self._more_headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._num_sent = 0
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_disconnect(receive, self._run(send))

    async def _run(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            first = asyncio.ensure_future(anext(events, None))
            try:
                await asyncio.wait((first,), timeout=KEEP_ALIVE_S)
                if first.done():
                    first.result()  # raises what failed before the first event, while there is still a status to give
                await send({**_START, "headers": [*_HEADERS, *self._more_headers]})
                keep_alive = asyncio.create_task(self._keep_alive(send))
                try:
                    await self._pump(first, events, send)
                finally:
                    keep_alive.cancel()
            finally:
                if not first.done():
                    first.cancel()
                    await asyncio.gather(first, return_exceptions=True)

    async def _pump(self, first: asyncio.Future[dict[str, Any] | None], events: AsyncGenerator[dict[str, Any], None], send: Send) -> None:
        try:
            event = await first
            while event is not None:
                await self._send(send, self._framing.frame(event), more=True)
                event = await anext(events, None)
        except OctavoError as error:
            await self._send(send, self._framing.frame(self._framing.error(error)), more=False)
        except Exception as error:
            if isinstance(error, ClientDisconnected):
                raise
            _log.exception("a stream failed")
            await self._send(send, self._framing.frame(self._framing.error(internal_error())), more=False)
        else:
            await self._send(send, self._framing.last, more=False)

    async def _send(self, send: Send, data: bytes, *, more: bool) -> None:
        self._num_sent += 1
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            raise ClientDisconnected from None

    async def _keep_alive(self, send: Send) -> None:
        while True:
            before = self._num_sent
            await asyncio.sleep(KEEP_ALIVE_S)
            if self._num_sent == before:
                await self._send(send, b": keep-alive\n\n", more=True)
