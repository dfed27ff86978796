"""`serve`: one process that answers HTTP, and the engine process that it starts. (Of several processes, `processes/supervisor.py`.)

The port is taken before anything is loaded, so that a taken one fails at once. The server then listens while the model
loads: /livez says 200, everything else 503 model_loading. On SIGTERM or SIGINT nothing new is taken, unfinished
answers get DRAIN_S to end (none after a second signal), the engine is stopped, what is left ends with an error event,
and `serve` returns 0.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.client.engine_launch import LaunchedEngine
from octavo.client.engine_process import EngineProcess
from octavo.client.load import Load
from octavo.config.schema import EngineConfig
from octavo.config.server_schema import ServerConfig
from octavo.engine.lifeline import forbid_core_dumps
from octavo.engine.phases import PhaseClock, process_start_s
from octavo.loaders.store import resolve_model
from octavo.messages.wire import EngineReady
from octavo.server.auth import check_exposure
from octavo.server.listener import open_listeners, open_unix_listener
from octavo.server.logs import log_to_stderr
from octavo.server.share import Share, alone
from octavo.server.tls import keep_fresh, make_context

if TYPE_CHECKING:
    from octavo.client.async_engine import AsyncEngine
    from octavo.server.protocol import Server
    from octavo.server.state import ServerState

EXIT_OK = 0
EXIT_ENGINE_GONE = 70
DRAIN_S = 10.0
ENGINE_CHECK_S = 1.0

_log = logging.getLogger("octavo.server")


def serve(engine_config: EngineConfig, config: ServerConfig, launched: LaunchedEngine) -> int:
    """Serve with the engine `launched` until a signal; return the exit code: 0, or 70 when the engine is gone. Raises StartupError."""
    started_s = time.monotonic()
    clock = PhaseClock(process_start_s())
    clock.mark("imports, flags")
    if config.uds is None:
        check_exposure(config.host, len(config.api_key), config.insecure_no_auth)
    forbid_core_dumps()  # prompts and keys are in this process's memory
    log_to_stderr(config.log_level, config.log_format)
    listeners = (
        open_listeners(config.host, config.port, config.api_server_count) if config.uds is None else [open_unix_listener(Path(config.uds))]
    )
    try:
        with asyncio.Runner() as runner:
            if config.api_server_count > 1:
                from octavo.server.processes.supervisor import supervise

                gc.enable()
                return runner.run(supervise(engine_config, config, listeners, launched, started_s))
            return runner.run(_serve(engine_config, config, listeners[0], launched, started_s, clock))
    finally:
        if config.uds is not None:
            Path(config.uds).unlink(missing_ok=True)


async def _serve(
    engine_config: EngineConfig,
    config: ServerConfig,
    listener: socket.socket,
    launched: LaunchedEngine,
    started_s: float,
    clock: PhaseClock,
) -> int:
    resolve_model(engine_config.model.model)  # one that is not on disk is told before anything starts
    share = alone(config.response_store_bytes)

    def on_ready(engine: AsyncEngine) -> None:
        announce(engine.ready, engine.model_names[0], config, listener, time.monotonic() - started_s)

    return await answer(engine_config, config, listener, share, _load(engine_config, launched, share.load), on_ready, clock)


async def answer(
    engine_config: EngineConfig,
    config: ServerConfig,
    listener: socket.socket,
    share: Share,
    load: Coroutine[Any, Any, AsyncEngine],
    on_ready: Callable[[AsyncEngine], None],
    clock: PhaseClock,
) -> int:
    """Answer HTTP on `listener` until a signal, with the engine that `load` returns; return the exit code. `clock` goes on with the
    phases of this process' start. Raises StartupError."""
    tls = make_context(config.ssl_keyfile, config.ssl_certfile, config.ssl_ca_certs) if config.ssl_keyfile and config.ssl_certfile else None
    stop, hurry = stop_signals()
    loading = asyncio.create_task(load)
    try:
        await asyncio.sleep(0)  # the engine process is on its way; importing the HTTP stack takes this process a while

        from octavo.server.app import create_app
        from octavo.server.endpoint import build_checks
        from octavo.server.protocol import ConnectionLimits, make_server

        app = create_app(None, config, share=share)
        gc.enable()
        clock.mark("HTTP, engine's client")
        limits = ConnectionLimits(config.max_connections, config.max_connections_per_client, share.load.connections)
        chores, checks = _chores(app.state.server, config, tls), build_checks(app.state.endpoints)
        async with _listening(make_server(app, DRAIN_S, limits, tls), listener), _beside(chores), _beside(checks):
            try:
                engine = await _unless(stop, loading)
                if engine is None:
                    return EXIT_OK
                clock.mark("waits for the engine")
                app.state.server.attach(engine, engine_config.cache, clock.phases)
                _log.info("server %s", clock.line())
                gc.freeze()  # what start-up made stays: a collection that looks at all of it holds every stream up for 20 ms and more
                on_ready(engine)
                await _until_stop(engine, stop)
                app.state.server.drain()
                _log.info("stopping: %d requests unfinished", engine.num_own)
                await _drain(engine, hurry)
                return EXIT_OK if stop.is_set() else EXIT_ENGINE_GONE
            finally:
                await _end_engine(loading)  # while connections are open, so that what is left gets its error event
    finally:
        await _end_engine(loading)


def stop_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Return an event that SIGTERM and SIGINT set, and one for the second of them."""
    stop, hurry = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stop, hurry


async def _load(config: EngineConfig, launched: LaunchedEngine, load: Load) -> AsyncEngine:
    process = EngineProcess(launched, config)

    from octavo.client.async_engine import AsyncEngine

    return await AsyncEngine.start(config, on_log=_log.info, process=process, load=load)


@asynccontextmanager
async def _listening(server: Server, listener: socket.socket) -> AsyncIterator[None]:
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


async def _chores(state: ServerState, config: ServerConfig, tls: ssl.SSLContext | None) -> None:
    """What goes on beside the answering, for as long as there is answering."""
    chores = []
    if not config.disable_log_stats:
        chores.append(state.stats_line.write_all())
    if tls is not None and config.enable_ssl_refresh and config.ssl_keyfile and config.ssl_certfile:
        chores.append(keep_fresh(tls, config.ssl_keyfile, config.ssl_certfile))
    await asyncio.gather(*chores)


@asynccontextmanager
async def _beside(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _unless(stop: asyncio.Event, loading: asyncio.Task[AsyncEngine]) -> AsyncEngine | None:
    """Return the engine once it can serve, or None when the signal comes first. Raises StartupError."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return loading.result() if loading.done() else None


async def _end_engine(loading: asyncio.Task[AsyncEngine]) -> None:
    """Stop the engine, whether it has started or not. Idempotent."""
    loading.cancel()
    (engine,) = await asyncio.gather(loading, return_exceptions=True)
    if not isinstance(engine, BaseException):
        await engine.stop()


async def _until_stop(engine: AsyncEngine, stop: asyncio.Event) -> None:
    """Return on a signal, or when the engine has died too often to be restarted."""
    while engine.last_error is None and not stop.is_set():
        try:
            await asyncio.wait_for(stop.wait(), ENGINE_CHECK_S)
        except TimeoutError:
            continue


async def _drain(engine: AsyncEngine, hurry: asyncio.Event) -> None:
    """Give unfinished requests DRAIN_S to end, or until `hurry`."""
    deadline = time.monotonic() + DRAIN_S
    while engine.num_own and time.monotonic() < deadline and not hurry.is_set():
        await asyncio.sleep(0.05)


def announce(ready: EngineReady, model_name: str, config: ServerConfig, listener: socket.socket, seconds: float) -> None:
    """Print the line that tells people and programs that requests are taken."""
    at_once = f"{ready.max_concurrency:.1f} full-length requests at once"
    memory = f"{ready.kv_cache_tokens:,} tokens of KV memory ({at_once})" if ready.num_blocks else f"no KV memory ({at_once})"
    print(
        f"octavo is ready at {_address(config, listener)} · model {Path(model_name).name} · "
        f"context {ready.max_model_len:,} tokens · {memory} · {seconds:.2f} s",
        flush=True,
    )


def _address(config: ServerConfig, listener: socket.socket) -> str:
    if config.uds is not None:
        return f"Unix socket {config.uds}"
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{'http' if config.ssl_keyfile is None else 'https'}://{host}:{listener.getsockname()[1]}{config.root_path}/v1"
