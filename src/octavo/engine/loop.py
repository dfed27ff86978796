"""`EngineLoop`: messages in, steps, messages out, until told to stop.

While requests are unfinished it looks at the socket between steps without waiting; when there are none it sleeps in the
socket. A client's first message, whatever it is, is answered with EngineReady first. All deltas of a step for one client
go out in one frame; the step's figures go to the client that came first, so that they are counted once.

It knows which client owns which request, and nothing of tokens or memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from octavo.engine.endpoint import EngineSocket
from octavo.messages.wire import (
    AbortRequest,
    ControlReply,
    ControlRequest,
    EngineReady,
    EngineRequest,
    GenerateRequest,
    PoolRequest,
    StepOutputs,
    ToEngine,
    TokenDelta,
)

log = logging.getLogger(__name__)


class Core(Protocol):
    """What the loop drives: `core.EngineCore`, or `pooling_core.PoolingCore` for models that do not generate."""

    @property
    def has_work(self) -> bool: ...
    def add(self, request: EngineRequest) -> None: ...
    def abort(self, request_ids: Iterable[str]) -> None: ...
    def control(self, request: ControlRequest) -> ControlReply: ...
    def step(self) -> StepOutputs | None: ...


class EngineLoop:
    def __init__(self, core: Core, socket: EngineSocket, ready: EngineReady) -> None:
        self._core = core
        self._socket = socket
        self._ready = ready
        self._clients: dict[bytes, None] = {}  # in order of arrival
        self._owners: dict[str, bytes] = {}  # unfinished request -> client
        self._is_stopping = False

    @property
    def clients(self) -> list[bytes]:
        return list(self._clients)

    def run(self) -> None:
        """Serve until `stop` or a shutdown message; unfinished requests are then aborted, and their clients told."""
        while not self._is_stopping:
            for client, message in self._socket.receive(0 if self._core.has_work else None):
                self._take(client, message)
            self._step()
        self._core.abort(list(self._owners))
        self._step()

    def stop(self) -> None:
        """Make `run` return after the step in hand; safe to call from a signal handler."""
        self._is_stopping = True

    def _take(self, client: bytes, message: ToEngine) -> None:
        if client not in self._clients:
            self._clients[client] = None
            self._send(client, self._ready)
        if isinstance(message, GenerateRequest | PoolRequest):
            self._add(client, message)
        elif isinstance(message, AbortRequest):
            self._core.abort(request_id for request_id in message.request_ids if self._owners.get(request_id) == client)
        elif message.kind == "shutdown":
            self._send(client, ControlReply(message.control_id, True))
            self.stop()
        else:
            self._send(client, self._core.control(message))

    def _add(self, client: bytes, request: EngineRequest) -> None:
        """Queue a request. One whose id is taken is dropped: an answer under that id would end the other request."""
        if request.request_id in self._owners:
            log.warning("dropped a request whose id belongs to an unfinished one")
            return
        self._owners[request.request_id] = client
        self._core.add(request)

    def _step(self) -> None:
        outputs = self._core.step()
        if outputs is None:
            return
        by_client: dict[bytes, list[TokenDelta]] = {}
        for delta in outputs.deltas:
            if delta.finish_reason is None:
                client = self._owners[delta.request_id]
            else:
                client = self._owners.pop(delta.request_id)
            by_client.setdefault(client, []).append(delta)
        stats_client = next(iter(self._clients), None)
        if stats_client is not None and outputs.stats is not None:
            by_client.setdefault(stats_client, [])
        for client, deltas in by_client.items():
            self._send(client, StepOutputs(deltas, outputs.stats if client == stats_client else None))

    def _send(self, client: bytes, message: EngineReady | StepOutputs | ControlReply) -> None:
        """Send, or, when the client is gone, abort all that it left behind."""
        if self._socket.send(client, message):
            return
        if client in self._clients:
            del self._clients[client]
            orphans = [request_id for request_id, owner in self._owners.items() if owner == client]
            log.warning("a client is gone; its %d unfinished requests are aborted", len(orphans))
            self._core.abort(orphans)
