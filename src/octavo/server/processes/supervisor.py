"""The supervisor of several API processes: it keeps the engine, the port and what the processes share, and answers no request.

- The engine: one that dies is replaced, and every API process replays its own requests; too many deaths, and all ends.
- The API processes: one that dies is replaced on the same listening socket, where new connections have waited for it; its own
  requests are lost with its connections, the engine is told to drop them, nobody else notices.
- SIGTERM: each drains as a server alone does; then the engine is stopped.

The engine tells its steps to the client that came first, which is the supervisor: it writes the metrics of steps into its row.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from octavo.client.deaths import Deaths
from octavo.client.engine_launch import LaunchedEngine
from octavo.client.engine_process import EngineProcess
from octavo.client.front import model_name
from octavo.client.load import Load
from octavo.config.schema import EngineConfig
from octavo.config.server_schema import ServerConfig
from octavo.errors import StartupError
from octavo.loaders.store import resolve_model
from octavo.messages.stats import StepStats
from octavo.messages.wire import EngineReady, FromEngine, StepOutputs
from octavo.metrics.figures import Figures
from octavo.metrics.recorder import MetricsRecorder
from octavo.server.processes.child import ApiProcess
from octavo.server.processes.messages import (
    DeleteResponse,
    EngineDown,
    EngineGone,
    EngineHangs,
    EngineUp,
    FindResponse,
    Found,
    FromProcess,
    PutResponse,
    Start,
    ToProcess,
)
from octavo.server.processes.shared import create_block, open_figures
from octavo.server.responses.store import ResponseStore
from octavo.server.run import DRAIN_S, EXIT_ENGINE_GONE, EXIT_OK, announce, stop_signals
from octavo.server.stats_line import StatsLine

END_GRACE_S = 3.0  # beyond DRAIN_S, before a process that should have ended is killed

T = TypeVar("T")

_log = logging.getLogger("octavo.server")


async def supervise(
    engine_config: EngineConfig, config: ServerConfig, listeners: list[socket.socket], launched: LaunchedEngine, started_s: float
) -> int:
    """Serve with config.api_server_count processes until a signal; return the exit code. Raises StartupError."""
    resolve_model(engine_config.model.model)  # one that is not on disk is told before anything starts
    stop, hurry = stop_signals()
    server = Supervisor(engine_config, config, listeners)
    try:
        ready = await _unless(stop, server.start(launched))
        if ready is None:
            return EXIT_OK
        announce(ready, server.model_name, config, listeners[0], time.monotonic() - started_s)
        failure = await _unless(stop, server.keep())
        if failure is not None:
            _log.error("%s", failure)
            return EXIT_ENGINE_GONE
        _log.info("stopping %d API processes", config.api_server_count)
        await server.drain(hurry)
        return EXIT_OK
    finally:
        await server.close()


class Supervisor:
    def __init__(self, engine_config: EngineConfig, config: ServerConfig, listeners: list[socket.socket]) -> None:
        self._engine_config = engine_config
        self._config = config
        self._listeners = listeners
        self._block = create_block(config.api_server_count)
        self._figures: Figures = open_figures(self._block, 0)
        self._load = Load(self._figures)
        self._secret = secrets.token_bytes(32)
        self._responses = ResponseStore(config.response_store_bytes)
        self._stats_line = StatsLine()
        self._metrics: MetricsRecorder | None = None  # when the engine has told its sizes
        self._engine: EngineProcess | None = None
        self._up: EngineUp | None = None  # while it serves
        self._is_engine_gone = False
        self._processes: list[ApiProcess] = []
        self._chores: list[asyncio.Task[object]] = []

    @property
    def model_name(self) -> str:
        model = self._engine_config.model
        return model.served_model_name[0] if model.served_model_name else model_name(model.model)

    async def start(self, launched: LaunchedEngine) -> EngineReady:
        """Return what the engine `launched` resolved, once every API process answers. Raises StartupError."""
        self._engine = EngineProcess(launched, self._engine_config)
        for row in range(1, 1 + self._config.api_server_count):
            self._processes.append(await self._spawn(row))
        ready = await self._engine.wait_ready()
        self._bring_up(self._engine)
        for line in ready.startup_lines:
            _log.info("%s", line)
        prefix, cache = self._config.metrics_prefix, self._engine_config.cache
        self._metrics = MetricsRecorder(prefix, self.model_name, ready, cache, self._figures)
        self._engine.listen(self._on_message)
        await asyncio.gather(*(process.wait_serving() for process in self._processes))
        return ready

    async def keep(self) -> str:
        """Replace what dies; return why that came to an end."""
        if not self._config.disable_log_stats:
            self._chores.append(asyncio.create_task(self._stats_line.write_all()))
        keepers = [self._keep_engine(), *(self._keep_process(number) for number in range(len(self._processes)))]
        tasks = [asyncio.create_task(keeper) for keeper in keepers]
        self._chores += tasks
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()

    async def drain(self, hurry: asyncio.Event) -> None:
        """Let every API process end its answers; a second signal hurries them."""
        self._stop_chores()  # what ends now is not to be replaced
        for process in self._processes:
            process.terminate()
        hurrying = asyncio.create_task(self._hurry(hurry))
        try:
            async with asyncio.timeout(DRAIN_S + END_GRACE_S):
                await self._wait_all()
        except TimeoutError:
            _log.warning("API processes that had not ended are killed")
        finally:
            hurrying.cancel()

    async def close(self) -> None:
        """End everything. Idempotent."""
        self._stop_chores()
        for process in self._processes:
            await process.close()
        if self._engine is not None:
            await self._engine.close()

    def _stop_chores(self) -> None:
        for chore in self._chores:
            chore.cancel()
        self._chores.clear()

    async def _hurry(self, hurry: asyncio.Event) -> None:
        await hurry.wait()
        for process in self._processes:
            process.terminate()

    async def _keep_engine(self) -> str:
        deaths = Deaths()
        while (engine := self._engine) is not None:
            code = await engine.wait_dead()
            await engine.close()
            self._up = None
            self._tell(EngineDown(code))
            _log.info("engine process ended (exit code %d)", code)
            if not deaths.count():
                reason = deaths.reason
                break
            await asyncio.sleep(deaths.delay_s)
            try:
                self._engine = await EngineProcess.spawn(self._engine_config)
                await self._engine.wait_ready()
            except StartupError as error:
                reason = error.message
                break
            self._engine.listen(self._on_message)
            self._bring_up(self._engine)
        self._is_engine_gone = True
        self._tell(EngineGone(reason))
        await self._wait_all()  # each tells its callers, and ends
        return f"the engine is given up: {reason}"

    async def _keep_process(self, number: int) -> str:
        deaths, row = Deaths(), 1 + number
        while True:
            code = await self._processes[number].wait()
            await self._processes[number].close()
            self._load.clear(row)
            if self._metrics is not None:
                self._metrics.clear(row)
            _log.warning("API process %d ended (exit code %d); its requests end with it", number, code)
            if self._is_engine_gone:
                await self._wait_all()
                return "the engine is gone"
            if not deaths.count():
                return f"API process {number} is given up: {deaths.reason}"
            await asyncio.sleep(deaths.delay_s)
            self._processes[number] = await self._spawn(row)
            if self._up is not None:  # else it is told with all the others
                self._processes[number].tell(self._up)

    async def _spawn(self, row: int) -> ApiProcess:
        start = Start(
            engine=self._engine_config,
            server=self._config,
            listener=self._listeners[(row - 1) % len(self._listeners)].fileno(),
            block=self._block,
            control=-1,
            row=row,
            name=f"{secrets.token_hex(4)}.",  # no two processes, dead ones included, have requests of the same ids
            secret=self._secret,
        )
        return await ApiProcess.spawn(start, self._on_word)

    def _bring_up(self, engine: EngineProcess) -> None:
        """Let the API processes to an engine that serves and that knows the supervisor as its first client."""
        self._up = EngineUp(str(engine.directory))
        self._tell(self._up)

    async def _wait_all(self) -> None:
        await asyncio.gather(*(process.wait() for process in self._processes))

    def _tell(self, message: ToProcess) -> None:
        for process in self._processes:
            process.tell(message)

    def _on_word(self, process: ApiProcess, word: FromProcess) -> None:
        match word:
            case EngineHangs():
                if self._engine is not None:
                    self._engine.kill()
            case PutResponse(tenant, stored):
                self._responses.put(tenant, stored)
            case FindResponse(call_id, tenant, response_id):
                process.tell(Found(call_id, stored=self._responses.get(tenant, response_id)))
            case DeleteResponse(call_id, tenant, response_id):
                process.tell(Found(call_id, was_there=self._responses.delete(tenant, response_id)))

    def _on_message(self, message: FromEngine) -> None:
        if isinstance(message, StepOutputs) and message.stats is not None:
            self._record(message.stats)

    def _record(self, stats: StepStats) -> None:
        usual = self._load.usual_step_s
        usual.inc(0.1 * (stats.step_s - usual.value))  # a moving average
        if self._metrics is not None:
            self._metrics.record_step(stats)
        self._stats_line.record_step(stats)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what `work` returns, or None when the signal comes first, which cancels it."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        return working.result()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return None
