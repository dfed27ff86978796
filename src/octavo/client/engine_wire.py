"""The client's end of the engine's socket: whole messages out, whole messages in, one a turn of the event loop. Knows no process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import zmq

from octavo.engine.socket_path import SOCKET_NAME
from octavo.messages.codec import FrameError, encode, frame_decoder
from octavo.messages.wire import ControlRequest, FromEngine, ToEngine

decode_from_engine: Callable[[bytes | memoryview], FromEngine] = frame_decoder(FromEngine)
HELLO = ControlRequest(control_id=0, kind="ping")  # the first frame tells the engine who we are; later ones ask if it is there


class EngineWire:
    """`first()` returns the engine's first word, listen() says who gets the others, in order, on the event loop."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[FromEngine] = asyncio.Queue()
        self._on_message: Callable[[FromEngine], None] = self._inbox.put_nowait
        self._is_due = False  # the loop will look at the socket in its next turn
        self._loop.add_reader(socket.fileno(), self._look)
        self._look()

    @classmethod
    def connect(cls, directory: Path) -> EngineWire:
        """Return a wire to the engine whose socket is, or will be, in `directory`. Raises zmq.ZMQError."""
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        try:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RECONNECT_IVL, 5)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.RCVHWM, 0)
            socket.connect(f"ipc://{directory / SOCKET_NAME}")
        except BaseException:
            socket.close()
            raise
        return cls(socket)

    async def first(self) -> FromEngine:
        return await self._inbox.get()

    def listen(self, on_message: Callable[[FromEngine], None]) -> None:
        """Give `on_message` what has come since, and from now on each message as it comes."""
        while not self._inbox.empty():
            on_message(self._inbox.get_nowait())
        self._on_message = on_message

    def send(self, message: ToEngine) -> None:
        self._socket.send(encode(message), zmq.NOBLOCK, copy=True)
        self._look()  # a send may have taken the descriptor's edge

    async def drain(self) -> None:
        """Hand on all that has come."""
        while self._hand_on_one():
            await asyncio.sleep(0)

    def close(self) -> None:
        """Idempotent."""
        if not self._socket.closed:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

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
