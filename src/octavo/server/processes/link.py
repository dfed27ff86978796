"""An API process' side of its supervisor: the engine that the supervisor keeps, and the responses that it stores for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from octavo.client.engine_process import first_word
from octavo.client.engine_wire import HELLO, EngineWire
from octavo.errors import StartupError
from octavo.messages.wire import EngineReady, FromEngine, ToEngine
from octavo.server.processes.messages import (
    Channel,
    DeleteResponse,
    EngineDown,
    EngineGone,
    EngineHangs,
    EngineUp,
    FindResponse,
    Found,
    PutResponse,
    ToProcess,
)
from octavo.server.responses.store import StoredResponse


class SupervisorLink:
    """Reads the supervisor's messages. `next_engine` gives each engine once; `find` and the like are a ResponseStore's."""

    def __init__(self, channel: Channel, *, stores: bool) -> None:
        self.is_open = stores
        self._channel = channel
        self._engines: asyncio.Queue[EngineLink | StartupError] = asyncio.Queue()
        self._engine: EngineLink | None = None
        self._answers: dict[int, asyncio.Future[Found]] = {}
        self._num_calls = 0

    async def read(self) -> None:
        """Take messages until the supervisor closes its end."""
        async for message in self._channel.messages():
            self._take(message)

    async def next_engine(self) -> EngineLink:
        """Return the engine that comes next; it may still be starting. Raises StartupError when there will be none."""
        found = await self._engines.get()
        if isinstance(found, StartupError):
            raise found
        return found

    async def put(self, tenant: str, stored: StoredResponse) -> None:
        self._channel.send(PutResponse(tenant, stored))

    async def get(self, tenant: str, response_id: str) -> StoredResponse | None:
        call_id, answer = self._call()
        self._channel.send(FindResponse(call_id, tenant, response_id))
        return (await answer).stored

    async def delete(self, tenant: str, response_id: str) -> bool:
        call_id, answer = self._call()
        self._channel.send(DeleteResponse(call_id, tenant, response_id))
        return (await answer).was_there

    def _call(self) -> tuple[int, asyncio.Future[Found]]:
        self._num_calls += 1
        answer = self._answers[self._num_calls] = asyncio.get_running_loop().create_future()
        return self._num_calls, answer

    def _take(self, message: ToProcess) -> None:
        match message:
            case EngineUp(directory):
                self._engine = EngineLink(Path(directory), self._channel)
                self._engines.put_nowait(self._engine)
            case EngineDown(exit_code):
                if self._engine is not None:
                    self._engine.end(exit_code)
            case EngineGone(reason):
                self._engines.put_nowait(StartupError(reason))
            case Found():
                answer = self._answers.pop(message.call_id)
                if not answer.done():
                    answer.set_result(message)


class EngineLink:
    """An engine that another process keeps, as `client.engine_process.Connection`."""

    def __init__(self, directory: Path, channel: Channel) -> None:
        self._wire = EngineWire.connect(directory)
        self._channel = channel
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._wire.send(HELLO)

    async def wait_ready(self) -> EngineReady:
        return await first_word(self._wire, self.wait_dead())

    def listen(self, on_message: Callable[[FromEngine], None]) -> None:
        self._wire.listen(on_message)

    def send(self, message: ToEngine) -> None:
        self._wire.send(message)

    async def wait_dead(self) -> int:
        code = await asyncio.shield(self._exit_code)
        await self._wire.drain()
        return code

    def kill(self) -> None:
        """Have the supervisor kill it."""
        self._channel.send(EngineHangs())

    async def close(self) -> None:
        """Leave it; the others may go on with it."""
        self._wire.close()

    def end(self, exit_code: int) -> None:
        """The supervisor has seen its end."""
        if not self._exit_code.done():
            self._exit_code.set_result(exit_code)
