"""The ASGI application: the gate around every request, the routes, and errors in OpenAI's shape.

The gate gives each request an id (and tells it as x-request-id, unless the caller sent one of its own), takes off a proxy's
prefix, refuses foreign hosts and origins, sees to it that no exception leaves the application, and writes one log line a
request, with the route's template and never the raw path.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.config.server_schema import ServerConfig
from octavo.errors import OctavoError
from octavo.server.auth import check_origin
from octavo.server.disconnect import ClientDisconnected
from octavo.server.endpoint import Endpoint
from octavo.server.errors import error_response, internal_error, method_not_allowed, unknown_url
from octavo.server.routes import build_routes, served
from octavo.server.share import Share
from octavo.server.state import Engine, ServerState

_log = logging.getLogger("octavo.server")

PROBES = ("/health", "/livez", "/readyz", "/ping", "/load", "/metrics")  # asked every few seconds: not worth a line each
CORS_METHODS = ("GET", "POST", "DELETE")
CORS_HEADERS = ("authorization", "content-type", "x-api-key", "x-request-id", "x-request-timeout-ms")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
SAFETY_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


def create_app(
    engine: Engine | None, config: ServerConfig, endpoints: Sequence[Endpoint] | None = None, share: Share | None = None
) -> Starlette:
    """Return the application of `endpoints`, by default all that `config` has. With no engine those that need one answer 503
    model_loading until `app.state.server.attach(engine)`."""
    chosen = served(config) if endpoints is None else endpoints
    state = ServerState(config, share)
    if engine is not None:
        state.attach(engine)
    app = Starlette(routes=build_routes(chosen), exception_handlers={HTTPException: _http_exception, OctavoError: _octavo_error})
    app.router.redirect_slashes = False
    app.state.server = state
    app.state.endpoints = chosen
    if config.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allowed_origins,
            allow_credentials=config.allow_credentials,
            allow_methods=CORS_METHODS,
            allow_headers=CORS_HEADERS,
            expose_headers=("x-request-id", "x-ignored-fields", "retry-after"),
        )
    app.add_middleware(Gate, config=config)
    return app


class Gate:
    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = secrets.token_hex(12)
        told_id = named_by_caller(headers) or request_id  # answers are named by our own id: a caller's may come twice
        arrival_s = time.monotonic()
        scope.setdefault("state", {}).update(request_id=request_id, arrival_s=arrival_s)
        status = 0
        scope["path"] = without_prefix(scope["path"], self._config.root_path)

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], (b"x-request-id", told_id.encode()), *SAFETY_HEADERS]
                message = {**message, "headers": headers}  # a new one: the sender may keep its own for the next answer
            await send(message)

        try:
            check_origin(scope["method"], headers, self._config.host, self._config.allowed_hosts, self._config.allowed_origins)
            await self._app(scope, receive, send_marked)
        except ClientDisconnected:
            status = status or 499
        except OctavoError as error:
            await error_response(error, scope["path"])(scope, receive, send_marked)
        except Exception:
            _log.exception("request %s failed", told_id)
            if status:
                raise  # the answer has begun: the connection is closed
            await error_response(internal_error(), scope["path"])(scope, receive, send_marked)
        finally:
            route = scope.get("route")
            _log.log(
                logging.DEBUG if route is not None and route.path in PROBES else logging.INFO,
                "%s %s %d %.0f ms %s",
                scope["method"],
                route.path if route is not None else "-",
                status,
                1e3 * (time.monotonic() - arrival_s),
                told_id,
            )


def named_by_caller(headers: Headers) -> str | None:
    """Return the x-request-id that the caller sent, if it is one that may stand in logs and headers."""
    name = headers.get("x-request-id", "")
    return name if _REQUEST_ID.fullmatch(name) else None


def without_prefix(path: str, root_path: str) -> str:
    """Return `path` without the prefix that a proxy has left in; a path that lacks it stays as it is."""
    return path.removeprefix(root_path) if root_path and path.startswith(f"{root_path}/") else path


async def _octavo_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, OctavoError):
        raise error
    return error_response(error, request.url.path)


async def _http_exception(request: Request, error: Exception) -> Response:
    """The router's own refusals: unknown path, wrong method."""
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 405:
        response = error_response(method_not_allowed(), request.url.path)
        response.headers.update(error.headers or {})
        return response
    known = [endpoint.path for endpoint in request.app.state.endpoints]
    return error_response(unknown_url(request.url.path, known), request.url.path)
