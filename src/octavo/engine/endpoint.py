"""`EngineSocket`: the engine's end of the wire. Many clients, whole messages in, whole messages out.

A ZeroMQ ROUTER on a Unix socket inside a directory that only this user may enter; named `engine`; clients are DEALERs, one frame a message.
A frame that is no message of ours is dropped, logged by size and counted. Queues have no limit here: what waits in them is
bounded by the requests that clients have open, and a dropped frame could be somebody's last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import zmq

from octavo.engine.socket_path import SOCKET_NAME, check_private
from octavo.messages.codec import MAX_FRAME_BYTES, FrameError, encode, frame_decoder
from octavo.messages.wire import FromEngine, ToEngine

log = logging.getLogger(__name__)

decode_to_engine: Callable[[bytes | memoryview], ToEngine] = frame_decoder(ToEngine)
LINGER_MS = 1000  # for the last frames to leave when the engine stops


class EngineSocket:
    def __init__(self, directory: Path, wake_fd: int | None = None) -> None:
        """Bind in `directory`, which must be ours and closed to others (StartupError). Bytes on `wake_fd` end a wait."""
        check_private(directory)
        self.num_bad_frames = 0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # sending to a client that is gone raises
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.bind(f"ipc://{directory / SOCKET_NAME}")
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        if wake_fd is not None:
            self._poller.register(wake_fd, zmq.POLLIN)

    def receive(self, timeout_ms: int | None) -> list[tuple[bytes, ToEngine]]:
        """Return (client, message) pairs that have come, waiting up to `timeout_ms` for the first (None: until one comes or a wake-up)."""
        if timeout_ms != 0:
            self._poller.poll(timeout_ms)
        received: list[tuple[bytes, ToEngine]] = []
        while True:
            try:
                client, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return received
            try:
                if len(frames) != 1:
                    raise FrameError(f"{len(frames)} frames in place of one")
                received.append((client, decode_to_engine(frames[0])))
            except FrameError as error:
                self.num_bad_frames += 1
                log.warning("dropped a bad message of %d bytes: %s (%d so far)", sum(map(len, frames)), error, self.num_bad_frames)

    def send(self, client: bytes, message: FromEngine) -> bool:
        """Queue `message` for `client`. Returns False when the client is gone."""
        try:
            self._socket.send_multipart((client, encode(message)), zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        return True

    def close(self) -> None:
        """Send what is queued (for LINGER_MS at most) and close."""
        self._socket.close()
        self._context.term()
