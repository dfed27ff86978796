"""Closing a connection on which the client is still sending.

A socket that is closed with bytes unread is reset by the kernel, and the reset may overtake the answer: the client that sent
too much would learn nothing of why it was refused. So our sending side is closed first, and what still comes is thrown away
until the client has closed too, or LINGER_S are over (RFC 9112, section 9.6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LINGER_S = 2.0


class LingeringTransport:
    """A transport that lingers when it is closed while `is_unread()`: while the client may still be sending."""

    def __init__(self, transport: asyncio.Transport, is_unread: Callable[[], bool]) -> None:
        self.is_lingering = False
        self.write = transport.write  # called for every token: not worth a look at __getattr__
        self._transport = transport
        self._is_unread = is_unread

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._is_unread():
            self._transport.close()
            return
        self.is_lingering = True
        if self._transport.can_write_eof():  # not over TLS
            self._transport.write_eof()
        self._transport.resume_reading()
        asyncio.get_running_loop().call_later(LINGER_S, self._transport.close)
