"""The engine's process and the socket to it: start, send, receive, notice its death. Knows no requests."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq

from octavo.config.schema import EngineConfig
from octavo.engine.endpoint import SOCKET_NAME
from octavo.errors import StartupError
from octavo.messages.codec import FrameError, decode_from_engine, encode
from octavo.messages.wire import ControlRequest, EngineFailed, EngineReady, FromEngine, ToEngine

STOP_GRACE_S = 5.0
HELLO = ControlRequest(control_id=0, kind="ping")  # the first frame tells the engine who we are; later ones ask if it is there


class EngineProcess:
    """One engine process. wait_ready() returns its first word, listen() says who gets the others, in order, on the event loop.

    The socket lives in a fresh directory of mode 0700, gone when the process is.
    """

    def __init__(self, process: asyncio.subprocess.Process, socket: zmq.Socket[bytes], directory: Path) -> None:
        self._process = process
        self._socket = socket
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[FromEngine] = asyncio.Queue()
        self._on_message: Callable[[FromEngine], None] = self._inbox.put_nowait
        self._is_due = False  # the loop will look at the socket in its next turn
        self._loop.add_reader(socket.fileno(), self._look)
        self._look()

    @classmethod
    async def spawn(cls, config: EngineConfig) -> EngineProcess:
        """Return a starting engine; wait_ready() tells when it can serve. Raises StartupError."""
        directory = _make_directory()
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        try:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RECONNECT_IVL, 5)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.RCVHWM, 0)
            socket.connect(f"ipc://{directory / SOCKET_NAME}")
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "octavo.engine.process", str(directory), stdin=asyncio.subprocess.PIPE, start_new_session=True
            )
            stdin = process.stdin
            if stdin is None:
                raise StartupError("the engine process has no standard input")
            stdin.write(msgspec.msgpack.encode(config))
            stdin.close()
        except BaseException as error:
            socket.close()
            shutil.rmtree(directory, ignore_errors=True)
            if isinstance(error, OSError | zmq.ZMQError):
                raise StartupError(f"the engine process cannot be started: {error.strerror}") from error
            raise
        engine = cls(process, socket, directory)
        engine.send(HELLO)
        return engine

    async def wait_ready(self) -> EngineReady:
        """Return what the engine resolved for itself. Raises StartupError with the engine's own words, or its exit code."""
        first = asyncio.ensure_future(self._inbox.get())
        died = asyncio.ensure_future(self.wait_dead())
        await asyncio.wait((first, died), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)  # a last word that came with the death
        died.cancel()
        if not first.done():
            first.cancel()
            raise StartupError(f"the engine process ended while starting (exit code {self._process.returncode}); its log is above")
        message = first.result()
        if isinstance(message, EngineFailed):
            raise StartupError(message.message)
        if not isinstance(message, EngineReady):
            raise StartupError(f"the engine's first message was {type(message).__name__}, not EngineReady")
        return message

    def listen(self, on_message: Callable[[FromEngine], None]) -> None:
        """Give `on_message` what has come since, and from now on each message as it comes."""
        while not self._inbox.empty():
            on_message(self._inbox.get_nowait())
        self._on_message = on_message

    def send(self, message: ToEngine) -> None:
        self._socket.send(encode(message), zmq.NOBLOCK, copy=True)
        self._look()  # a send may have taken the descriptor's edge

    async def wait_dead(self) -> int:
        """Return the exit code once the process has ended; what it had sent has been handed on by then."""
        code = await self._process.wait()
        while self._hand_on_one():
            await asyncio.sleep(0)
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
        if not self._socket.closed:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _look(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._receive)

    def _receive(self) -> None:
        """Hand on a frame, and the next one when the loop has turned: an engine that is faster than its readers must not keep them
        from reading. ZeroMQ's descriptor is edge-triggered: nothing more must be there before it is waited for."""
        self._is_due = False
        if self._hand_on_one():
            self._look()

    def _hand_on_one(self) -> bool:
        """Hand on the next frame; return whether there was one."""
        if self._socket.closed:
            return False
        try:
            frame = self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return False
        try:
            message = decode_from_engine(frame)
        except FrameError as error:
            print(f"octavo: dropped a frame from the engine: {error}", file=sys.stderr, flush=True)
        else:
            self._on_message(message)
        return True


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
