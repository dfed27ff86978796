"""HTTP/1.1 framing with limits: uvicorn and its httptools protocol, made strict.

Limits on the request line, on the number and size of headers and on the time that a head may take; one Host header;
no transfer coding but chunked. What breaks them is answered in OpenAI's error shape and the connection is closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httptools
import orjson
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from octavo.metrics.figures import Figures, Gauge
from octavo.server.lingering import LingeringTransport

MAX_REQUEST_LINE = 8 << 10
MAX_HEADERS = 64
MAX_HEADER_BYTES = 16 << 10
HEAD_TIMEOUT_S = 10.0
KEEP_ALIVE_S = 75

Refusal = tuple[int, str, str]  # status, code, message

BAD_REQUEST: Refusal = (400, "bad_request", "this is no valid HTTP/1.1 request")
BAD_METHOD: Refusal = (405, "method_not_allowed", "this server knows no such method")
BAD_VERSION: Refusal = (505, "http_version_not_supported", "this server speaks HTTP/1.1")
BAD_HOST: Refusal = (400, "invalid_host", "send exactly one Host header")
BAD_CODING: Refusal = (501, "unsupported_transfer_encoding", "the only transfer encoding taken is chunked")
LONG_LINE: Refusal = (414, "uri_too_long", f"the request line is longer than {MAX_REQUEST_LINE:,} bytes")
LARGE_HEAD: Refusal = (431, "header_too_large", f"more than {MAX_HEADERS} headers or {MAX_HEADER_BYTES:,} bytes of them")
CROWDED: Refusal = (503, "too_many_connections", "this server has as many connections as it takes; try again in a moment")
SLOW_HEAD: Refusal = (408, "request_timeout", f"the request's headers did not arrive within {HEAD_TIMEOUT_S:.0f} s")


class ConnectionLimits:
    """How many connections may be open, in all (`num_open` counts them, over all processes) and to this process from one address."""

    def __init__(self, in_all: int, per_client: int, num_open: Gauge | None = None) -> None:
        self.in_all = in_all
        self.per_client = per_client
        self._num_open = num_open or Gauge(Figures())
        self._open: Counter[str] = Counter()

    def take(self, client: str) -> bool:
        """Count a new connection; False when it is one too many. Either way `give_back` follows."""
        self._open[client] += 1
        self._num_open.inc()
        return self._num_open.value <= self.in_all and self._open[client] <= self.per_client

    def give_back(self, client: str) -> None:
        self._num_open.inc(-1)
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]


class StrictHttpProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._refusal: Refusal | None = None
        self._is_unread = False  # the client may still be sending a request
        self._in_head = True
        self._head_bytes = -1  # of the head that is being read, but for the piece it began in; -1: it began in this one
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._lingering = LingeringTransport(transport, lambda: self._is_unread)
        super().connection_made(self._lingering)  # type: ignore[arg-type]  # uvicorn asks no more of it
        if not self._limits.take(self._client_address):
            self._refuse(CROWDED)
            return
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, SLOW_HEAD)

    @property
    def _client_address(self) -> str:
        return self.client[0] if self.client else ""  # a Unix socket has none

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.give_back(self._client_address)
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingering.is_lingering:
            return
        self._is_unread = True
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserInvalidMethodError:
            self._refuse(BAD_METHOD if data[:1].isalpha() else BAD_REQUEST)
        except httptools.HttpParserError:
            self._refuse(self._refusal or BAD_REQUEST)
        else:
            if self._in_head:
                self._head_bytes = 0 if self._head_bytes < 0 else self._head_bytes + len(data)
                if self._head_bytes > MAX_REQUEST_LINE + MAX_HEADER_BYTES:
                    self._refuse(LARGE_HEAD if self.headers else LONG_LINE)

    def _feed(self, data: bytes) -> None:
        """Parse `data`. No upgrade is offered; as the parser skips the body of what asks for one, it gets the head again without that."""
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                start = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
                headers = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
                data = b"".join((start, *headers, b"\r\n", data[upgrade.args[0] :]))
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_unread = True
        self._in_head = True
        self._head_bytes = -1
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, SLOW_HEAD)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_REQUEST_LINE:
            self._stop_parsing(LONG_LINE)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS or sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADER_BYTES:
            self._stop_parsing(LARGE_HEAD)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_head_timer()
        version = self.parser.get_http_version()
        names = [name for name, _ in self.headers]
        if version not in ("1.0", "1.1"):
            self._stop_parsing(BAD_VERSION)
        if self.parser.get_method() == b"CONNECT":
            self._stop_parsing(BAD_METHOD)
        if names.count(b"host") != 1 and (version == "1.1" or b"host" in names):
            self._stop_parsing(BAD_HOST)
        if any(name == b"transfer-encoding" and value.lower() != b"chunked" for name, value in self.headers):
            self._stop_parsing(BAD_CODING)
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self._is_unread = False
            super().on_message_complete()

    def _stop_parsing(self, refusal: Refusal) -> None:
        """Leave the parser from inside one of its callbacks; data_received then refuses."""
        self._refusal = refusal
        raise ValueError(refusal[1])

    def _refuse(self, refusal: Refusal) -> None:
        self._stop_head_timer()
        if self.transport.is_closing():
            return
        status, code, message = refusal
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = orjson.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}})
            head = STATUS_LINE[status] + b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(head + body)
        self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: whoever runs it sets should_exit."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def make_server(app: ASGIApp, drain_s: float, limits: ConnectionLimits, tls: ssl.SSLContext | None = None) -> Server:
    """Return a server for `app`; when told to exit it gives open connections `drain_s` to end."""
    config = uvicorn.Config(
        app,
        http=partial(StrictHttpProtocol, limits=limits),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who asks is who connects: a header that anyone can send does not change it
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(drain_s)),
    )
    config.load()
    config.ssl = tls
    return Server(config)
