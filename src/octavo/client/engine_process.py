"""The engine's process: start it, wait until it can serve, notice its death. Knows no requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import msgspec
import zmq

from octavo.client.engine_launch import LaunchedEngine
from octavo.client.engine_wire import HELLO, EngineWire
from octavo.config.schema import EngineConfig
from octavo.errors import StartupError
from octavo.messages.wire import EngineFailed, EngineReady, FromEngine, ToEngine

STOP_GRACE_S = 5.0


class Connection(Protocol):
    """An engine to talk to: `EngineProcess`, which is its own, or a link to one that another process keeps."""

    async def wait_ready(self) -> EngineReady: ...
    def listen(self, on_message: Callable[[FromEngine], None]) -> None: ...
    def send(self, message: ToEngine) -> None: ...
    async def wait_dead(self) -> int: ...
    def kill(self) -> None: ...
    async def close(self) -> None: ...


class EngineProcess:
    """One engine process. wait_ready() returns its first word, listen() says who gets the others, in order, on the event loop."""

    def __init__(self, launched: LaunchedEngine, config: EngineConfig) -> None:
        """Tell `launched` its settings and own it from here on. Raises StartupError, with `launched` closed."""
        self._launched = launched
        self._loop = asyncio.get_running_loop()
        self._death: asyncio.Future[int] = self._loop.create_future()  # of the exit code
        try:
            self._wire = EngineWire.connect(launched.directory)
        except zmq.ZMQError as error:
            launched.close()
            raise StartupError(f"the engine process cannot be reached: {error.strerror}") from error
        launched.tell(msgspec.msgpack.encode(config))
        self._loop.add_reader(launched.line, self._on_end)
        self._wire.send(HELLO)

    @classmethod
    async def spawn(cls, config: EngineConfig) -> EngineProcess:
        """Return a starting engine; wait_ready() tells when it can serve. Raises StartupError."""
        return cls(LaunchedEngine(), config)

    async def wait_ready(self) -> EngineReady:
        """Return what the engine resolved for itself. Raises StartupError with the engine's own words, or its exit code."""
        return await first_word(self._wire, self.wait_dead())

    def listen(self, on_message: Callable[[FromEngine], None]) -> None:
        """Give `on_message` what has come since, and from now on each message as it comes."""
        self._wire.listen(on_message)

    def send(self, message: ToEngine) -> None:
        self._wire.send(message)

    async def wait_dead(self) -> int:
        """Return the exit code once the process has ended; what it had sent has been handed on by then."""
        code = await asyncio.shield(self._death)
        await self._wire.drain()
        return code

    def kill(self) -> None:
        self._launched.process.kill()

    async def close(self) -> None:
        """End the process (SIGTERM, then SIGKILL) and remove its directory. Idempotent."""
        self._launched.process.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(self._death), STOP_GRACE_S)
        except TimeoutError:
            self.kill()
            await asyncio.shield(self._death)
        self._wire.close()
        self._launched.close()

    @property
    def pid(self) -> int:
        return self._launched.process.pid

    @property
    def directory(self) -> Path:
        """Where its socket is."""
        return self._launched.directory

    def _on_end(self) -> None:
        self._loop.remove_reader(self._launched.line)
        self._death.set_result(self._launched.process.wait())


async def first_word(wire: EngineWire, death: Awaitable[int]) -> EngineReady:
    """Return the engine's first message. Raises StartupError: with its own words, or with the exit code that `death` gives."""
    first, died = asyncio.ensure_future(wire.first()), asyncio.ensure_future(death)
    await asyncio.wait((first, died), return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)  # a last word that came with the death
    if not first.done():
        first.cancel()
        raise StartupError(f"the engine process ended while starting (exit code {died.result()}); its log is above")
    died.cancel()
    message = first.result()
    if isinstance(message, EngineFailed):
        raise StartupError(message.message)
    if not isinstance(message, EngineReady):
        raise StartupError(f"the engine's first message was {type(message).__name__}, not EngineReady")
    return message
