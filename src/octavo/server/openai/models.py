"""GET /v1/models and /v1/models/{model}: the names under which the one loaded model is served."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.errors import JSONResponse, unknown_model
from octavo.server.state import Engine, ServerState

_STARTED = int(time.time())


async def list_models(request: Request) -> Response:
    state: ServerState = request.app.state.server
    engine = state.engine
    return JSONResponse({"object": "list", "data": [_card(name, engine) for name in engine.model_names]})


async def retrieve_model(request: Request) -> Response:
    state: ServerState = request.app.state.server
    engine = state.engine
    name = request.path_params["model"]
    check_model(engine, name)
    return JSONResponse(_card(name, engine))


def check_model(engine: Engine, name: str | None) -> None:
    """Raise NotFound unless `name` is one of the served names, or None: whichever there is."""
    if name is not None and name not in engine.model_names:
        raise unknown_model(engine.model_names)


def _card(name: str, engine: Engine) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "octavo",
        "root": engine.model_names[0],
        "parent": None,
        "max_model_len": engine.ready.max_model_len,
        "status": {"value": "loaded" if engine.is_alive else "loading"},
        "permission": [
            {
                "id": f"modelperm-{name}",
                "object": "model_permission",
                "created": _STARTED,
                "allow_create_engine": False,
                "allow_sampling": True,
                "allow_logprobs": True,
                "allow_search_indices": False,
                "allow_view": True,
                "allow_fine_tuning": False,
                "organization": "*",
                "group": None,
                "is_blocking": False,
            }
        ],
    }
