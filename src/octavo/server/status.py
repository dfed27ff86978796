"""What the server says of itself: whether it serves, how much it has to do, what it is."""

from __future__ import annotations

from dataclasses import asdict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo import __version__
from octavo.metrics.recorder import CONTENT_TYPE
from octavo.server.errors import JSONResponse
from octavo.server.state import ServerState


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
    settings = {name: value for name, value in asdict(state.config).items() if name != "api_key"}
    return JSONResponse(
        {
            "version": __version__,
            "models": engine.model_names,
            "engine": msgspec.to_builtins(engine.ready),
            "server": settings | {"num_api_keys": len(state.config.api_key)},
        }
    )


async def reset_prefix_cache(request: Request) -> Response:
    """Forget every cached prefix; success is false while requests run."""
    state: ServerState = request.app.state.server
    reply = await state.engine.control("reset_prefix_cache")
    return JSONResponse({"success": reply.ok})
