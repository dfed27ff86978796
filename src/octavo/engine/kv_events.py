"""Publishes the prefix cache's changes over ZeroMQ, from a thread of its own: the engine only puts them into a queue.

    PUB      [topic, sequence number, EventBatch as MessagePack]
    ROUTER   a client (REQ) sends a sequence number and gets ["", number, batch] for each batch from there on that is still
             in the buffer, then ["", -1, ""]

Sequence numbers are 8 bytes, big-endian, signed, from 0 on without gaps; a gap means that batches were lost, be it on the
wire or, when changes came faster than they could be sent, here.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from queue import Empty, SimpleQueue

import msgspec
import zmq

from octavo.config.schema import KVEventsConfig
from octavo.errors import StartupError
from octavo.kv.block import HashedBlock
from octavo.kv.events import Change, Cleared, EventBatch, Removed, Stored, to_events

log = logging.getLogger(__name__)

END = -1  # the sequence number that ends a replay
LINGER_MS = 500
POLL_MS = 200  # how long a request for a replay may wait when nothing else happens


class KVEventPublisher:
    """An `IndexListener`. It stops when it is let go."""

    def __init__(self, config: KVEventsConfig) -> None:
        """Bind the endpoints. Raises StartupError when one cannot be bound."""
        self._most = config.max_queue_size
        self._changes: SimpleQueue[Change | None] = SimpleQueue()
        context = zmq.Context()
        sender = _Sender(context, config)
        thread = threading.Thread(target=_run, args=(self._changes, sender), name="octavo-kv-events", daemon=True)
        thread.start()
        self._stop = weakref.finalize(self, _stop, self._changes, thread)

    def stored(self, group: int, content: HashedBlock) -> None:
        self._put(Stored(group, content))

    def removed(self, group: int, content: HashedBlock) -> None:
        self._put(Removed(group, content))

    def cleared(self) -> None:
        self._put(Cleared())

    def close(self) -> None:
        """Send what is queued and end the thread."""
        self._stop()

    def _put(self, change: Change) -> None:
        if self._changes.qsize() <= self._most:  # the one beyond the limit is what tells the thread of the loss
            self._changes.put(change)


def _stop(changes: SimpleQueue[Change | None], thread: threading.Thread) -> None:
    changes.put(None)
    thread.join()


class _Sender:
    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], config: KVEventsConfig) -> None:
        self.most_queued = config.max_queue_size
        self._context = context
        self._topic = config.topic.encode()
        self._next = 0
        self._sent: deque[tuple[int, bytes]] = deque(maxlen=config.buffer_steps)
        self._publisher = self._bind(zmq.PUB, config.endpoint, config.hwm)
        self._replay = self._bind(zmq.ROUTER, config.replay_endpoint, config.hwm) if config.replay_endpoint else None

    def _bind(self, kind: int, endpoint: str, hwm: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, hwm)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise StartupError(f"kv_events: {endpoint} cannot be bound ({error.strerror}); choose another endpoint") from error
        return socket

    def send(self, changes: list[Change]) -> None:
        if len(changes) > self.most_queued:
            log.warning("KV events came faster than they could be sent: some are lost, and a sequence number is left out")
            self._next += 1
        payload = msgspec.msgpack.encode(EventBatch(time.time(), to_events(changes)))
        self._sent.append((self._next, payload))
        self._publisher.send_multipart((self._topic, _sequence(self._next), payload))
        self._next += 1

    def answer_replays(self) -> None:
        """Answer the clients that have asked for past batches."""
        while self._replay is not None and self._replay.poll(0):
            client, *frames = self._replay.recv_multipart()
            if len(frames) != 2 or frames[0] != b"" or len(frames[1]) != 8:
                log.warning("dropped a bad request for a replay of KV events")
                continue
            start = int.from_bytes(frames[1], "big", signed=True)
            for number, payload in self._sent:
                if number >= start:
                    self._replay.send_multipart((client, b"", _sequence(number), payload))
            self._replay.send_multipart((client, b"", _sequence(END), b""))

    def close(self) -> None:
        self._publisher.close()
        if self._replay is not None:
            self._replay.close()
        self._context.term()


def _run(changes: SimpleQueue[Change | None], sender: _Sender) -> None:
    is_over = False
    while not is_over:
        batch = _drain(changes, sender.most_queued + 1)
        is_over = None in batch
        if news := [change for change in batch if change is not None]:
            sender.send(news)
        sender.answer_replays()
    sender.close()


def _drain(changes: SimpleQueue[Change | None], most: int) -> list[Change | None]:
    """Return what is queued, up to `most`, having waited up to POLL_MS for the first."""
    batch: list[Change | None] = []
    try:
        batch.append(changes.get(timeout=POLL_MS / 1000))
        while len(batch) < most:
            batch.append(changes.get_nowait())
    except Empty:
        pass
    return batch


def _sequence(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)
