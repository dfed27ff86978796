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
from typing import Any

import msgspec
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


class Framing(msgspec.Struct, frozen=True):
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
        self._has_begun = False
        self._num_sent = 0
        self._is_sending = False
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_disconnect(receive, self._run(send), self._watch(send))

    async def _run(self, send: Send) -> None:
        frame = self._framing.frame
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    if not self._has_begun:
                        await self._begin(send)
                    await self._send(send, frame(event), more=True)
        except OctavoError as error:
            if not self._has_begun:
                raise
            await self._send(send, frame(self._framing.error(error)), more=False)
        except Exception as error:
            if isinstance(error, ClientDisconnected) or not self._has_begun:
                raise
            _log.exception("a stream failed")
            await self._send(send, frame(self._framing.error(internal_error())), more=False)
        else:
            if not self._has_begun:
                await self._begin(send)
            await self._send(send, self._framing.last, more=False)

    async def _begin(self, send: Send) -> None:
        self._has_begun = True
        await send({**_START, "headers": [*_HEADERS, *self._more_headers]})

    async def _send(self, send: Send, data: bytes, *, more: bool) -> None:
        self._num_sent += 1
        self._is_sending = True
        await send({"type": "http.response.body", "body": data, "more_body": more})
        self._is_sending = False

    async def _watch(self, send: Send) -> None:
        """One timer for all that a stream waits for: say something where nothing is said for a while, and return, which ends
        the stream, when the client has not read for WRITE_TIMEOUT_S. Where even the first event is late, the answer begins."""
        stuck_s = 0.0
        while stuck_s < WRITE_TIMEOUT_S:
            num_sent = self._num_sent
            await asyncio.sleep(KEEP_ALIVE_S)
            if self._num_sent != num_sent:
                stuck_s = 0.0
            elif self._is_sending:
                stuck_s += KEEP_ALIVE_S
            elif self._has_begun:
                await send({"type": "http.response.body", "body": b": keep-alive\n\n", "more_body": True})
            else:
                await self._begin(send)
