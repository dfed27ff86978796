"""The table of routes: path, method, who may call it, and the handler. A route that does not say `open` needs a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo import __version__
from octavo.metrics.recorder import CONTENT_TYPE
from octavo.server.auth import Access
from octavo.server.errors import JSONResponse
from octavo.server.openai.chat import create_chat_completion
from octavo.server.openai.completions import create_completion
from octavo.server.openai.models import list_models, retrieve_model
from octavo.server.state import ServerState

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    path: str
    method: str
    access: Access
    handler: Handler


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


async def metrics(request: Request) -> Response:
    state: ServerState = request.app.state.server
    return Response(state.render_metrics(), headers={"content-type": CONTENT_TYPE})


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("/health", "GET", "open", health),
    Endpoint("/readyz", "GET", "open", health),
    Endpoint("/livez", "GET", "open", alive),
    Endpoint("/version", "GET", "key", version),
    Endpoint("/metrics", "GET", "key", metrics),
    Endpoint("/v1/models", "GET", "key", list_models),
    Endpoint("/v1/models/{model:path}", "GET", "key", retrieve_model),
    Endpoint("/v1/chat/completions", "POST", "key", create_chat_completion),
    Endpoint("/v1/completions", "POST", "key", create_completion),
)


def build_routes() -> list[Route]:
    return [Route(endpoint.path, _guarded(endpoint), methods=[endpoint.method]) for endpoint in ENDPOINTS]


def _guarded(endpoint: Endpoint) -> Handler:
    """Return the handler behind the check of the key that its route declares."""

    async def handle(request: Request) -> Response:
        if endpoint.access == "key":
            state: ServerState = request.app.state.server
            request.state.cache_salt = state.keys.tenant_salt(request.headers.getlist("authorization"))
        return await endpoint.handler(request)

    return handle
