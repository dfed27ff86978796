"""The engine's process: start it, wait until it can serve, notice its death. Knows no requests."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import msgspec
import zmq

from octavo.client.engine_wire import HELLO, EngineWire
from octavo.config.schema import EngineConfig
from octavo.engine.endpoint import SOCKET_NAME
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
    """One engine process. wait_ready() returns its first word, listen() says who gets the others, in order, on the event loop.

    The socket lives in a fresh directory of mode 0700, gone when the process is.
    """

    def __init__(self, process: asyncio.subprocess.Process, wire: EngineWire, directory: Path) -> None:
        self._process = process
        self._wire = wire
        self.directory = directory

    @classmethod
    async def spawn(cls, config: EngineConfig) -> EngineProcess:
        """Return a starting engine; wait_ready() tells when it can serve. Raises StartupError."""
        directory = _make_directory()
        wire: EngineWire | None = None
        try:
            wire = EngineWire.connect(directory)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "octavo.engine.process", str(directory), stdin=asyncio.subprocess.PIPE, start_new_session=True
            )
            stdin = process.stdin
            if stdin is None:
                raise StartupError("the engine process has no standard input")
            stdin.write(msgspec.msgpack.encode(config))
            stdin.close()
        except BaseException as error:
            if wire is not None:
                wire.close()
            shutil.rmtree(directory, ignore_errors=True)
            if isinstance(error, OSError | zmq.ZMQError):
                raise StartupError(f"the engine process cannot be started: {error.strerror}") from error
            raise
        wire.send(HELLO)
        return cls(process, wire, directory)

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
        code = await self._process.wait()
        await self._wire.drain()
        return code

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """End the process (SIGTERM, then SIGKILL) and remove its directory. Idempotent."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), STOP_GRACE_S)
            except TimeoutError:
                self.kill()
                await self._process.wait()
        self._wire.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self._process.pid


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


def _make_directory() -> Path:
    """Return a fresh directory of mode 0700, in /tmp where the path of a socket in TMPDIR would be too long. Raises StartupError."""
    try:
        directory = Path(tempfile.mkdtemp(prefix="octavo-"))
        if len(os.fsencode(directory / SOCKET_NAME)) > zmq.IPC_PATH_MAX_LEN:
            directory.rmdir()
            directory = Path(tempfile.mkdtemp(prefix="octavo-", dir="/tmp"))
    except OSError as error:
        raise StartupError(f"no directory for the engine's socket can be made: {error.strerror}; look at TMPDIR") from error
    return directory
