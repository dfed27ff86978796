"""What the server says of itself: whether it serves, how much it has to do, what it is."""

from __future__ import annotations

from typing import get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo import __version__
from octavo.errors import InvalidRequest
from octavo.messages.wire import PauseMode
from octavo.metrics.recorder import CONTENT_TYPE
from octavo.server.errors import JSONResponse
from octavo.server.state import ServerState

PAUSE_MODES: tuple[PauseMode, ...] = get_args(PauseMode)


async def health(request: Request) -> Response:
    """200 when a request would be taken now; what keeps it from that otherwise."""
    state: ServerState = request.app.state.server
    state.check_health()
    return Response()


async def alive(request: Request) -> Response:
    """200 as long as this process answers at all."""
    return Response()


async def version(request: Request) -> Response:
    return JSONResponse({"version": __version__})


async def load(request: Request) -> Response:
    """How many choices are unfinished."""
    state: ServerState = request.app.state.server
    return JSONResponse({"server_load": state.engine.num_unfinished})


async def metrics(request: Request) -> Response:
    state: ServerState = request.app.state.server
    return Response(state.render_metrics(), headers={"content-type": CONTENT_TYPE})


async def server_info(request: Request) -> Response:
    """The settings but for the keys, and what the engine made of them."""
    state: ServerState = request.app.state.server
    engine = state.engine
    settings = {name: value for name, value in msgspec.to_builtins(state.config).items() if name != "api_key"}
    return JSONResponse(
        {
            "version": __version__,
            "models": engine.model_names,
            "engine": msgspec.to_builtins(engine.ready),
            "phases": msgspec.to_builtins(state.phases),
            "server": settings | {"num_api_keys": len(state.config.api_key)},
        }
    )


async def reset_prefix_cache(request: Request) -> Response:
    """Forget every cached prefix; success is false while requests run."""
    state: ServerState = request.app.state.server
    reply = await state.engine.control("reset_prefix_cache")
    return JSONResponse({"success": reply.ok})


async def pause(request: Request) -> Response:
    """Begin with no further request until /resume; `mode` says what becomes of those that are there. Answers when that is done."""
    state: ServerState = request.app.state.server
    _check_one_process(state)
    mode, clear_cache = request.query_params.get("mode", "abort"), request.query_params.get("clear_cache", "true").lower()
    if mode not in PAUSE_MODES:
        raise InvalidRequest(f"mode must be one of {', '.join(PAUSE_MODES)}", param="mode")
    if clear_cache not in ("true", "false"):
        raise InvalidRequest("clear_cache must be true or false", param="clear_cache")
    await state.engine.pause(mode, clear_cache=clear_cache == "true")
    return JSONResponse({"status": "paused"})


async def resume(request: Request) -> Response:
    state: ServerState = request.app.state.server
    _check_one_process(state)
    await state.engine.resume()
    return JSONResponse({"status": "resumed"})


async def is_paused(request: Request) -> Response:
    state: ServerState = request.app.state.server
    return JSONResponse({"is_paused": state.engine.is_paused})


def _check_one_process(state: ServerState) -> None:
    """Raise InvalidRequest where the other API processes would not hear of a pause."""
    if state.config.api_server_count > 1:
        raise InvalidRequest(
            f"a server of {state.config.api_server_count} API processes does not pause; start it with --api-server-count 1",
            code="unsupported_task",
        )
