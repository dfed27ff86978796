"""Supervisor <-> API process: every message on their socket, and the socket's framing (a length of four bytes, then MessagePack)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec

from octavo.config.schema import EngineConfig
from octavo.config.server_schema import ServerConfig
from octavo.server.responses.store import StoredResponse


class Start(msgspec.Struct, frozen=True):
    """All that an API process needs to begin, on its standard input. Descriptors are inherited; `row` is its own in the block of
    figures, `name` what the ids of its requests begin with, `secret` what tenants' salts come from: the same for all."""

    engine: EngineConfig
    server: ServerConfig
    listener: int
    block: int
    control: int
    row: int
    name: str
    secret: bytes


class EngineUp(msgspec.Struct, frozen=True, tag="up"):
    """An engine starts, with its socket in `directory`."""

    directory: str


class EngineDown(msgspec.Struct, frozen=True, tag="down"):
    """It has ended with this exit code; another will follow."""

    exit_code: int


class EngineGone(msgspec.Struct, frozen=True, tag="gone"):
    """There will be no other, for this reason."""

    reason: str


class Found(msgspec.Struct, frozen=True, tag="found"):
    """The answer to FindResponse (None: there is no such response) and DeleteResponse (`was_there`)."""

    call_id: int
    stored: StoredResponse | None = None
    was_there: bool = False


class Serving(msgspec.Struct, frozen=True, tag="serving"):
    """The process answers requests."""


class CannotStart(msgspec.Struct, frozen=True, tag="cannot_start"):
    message: str


class EngineHangs(msgspec.Struct, frozen=True, tag="hangs"):
    """The engine has said nothing for too long; it is to be killed."""


class PutResponse(msgspec.Struct, frozen=True, tag="put"):
    tenant: str
    stored: StoredResponse


class FindResponse(msgspec.Struct, frozen=True, tag="find"):
    call_id: int
    tenant: str
    response_id: str


class DeleteResponse(msgspec.Struct, frozen=True, tag="delete"):
    call_id: int
    tenant: str
    response_id: str


ToProcess = EngineUp | EngineDown | EngineGone | Found
FromProcess = Serving | CannotStart | EngineHangs | PutResponse | FindResponse | DeleteResponse


class Channel:
    """One end of the socket between the supervisor and an API process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)

    @classmethod
    async def over(cls, end: socket.socket, kind: Any) -> Channel:
        """Return a channel on which messages of `kind` come."""
        return cls(*await asyncio.open_connection(sock=end), kind)

    def send(self, message: ToProcess | FromProcess) -> None:
        """Queue a message; one for a process that is gone is lost with it."""
        body = msgspec.msgpack.encode(message)
        self._writer.write(len(body).to_bytes(4, "big") + body)

    async def messages(self) -> AsyncIterator[Any]:
        """Yield what comes, until the other end is closed."""
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(4), "big")
                yield self._decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def close(self) -> None:
        """Send what is queued, and close."""
        self._writer.close()

    async def wait_closed(self) -> None:
        with suppress(ConnectionError):
            await self._writer.wait_closed()
