"""Errors as HTTP answers: OpenAI's error object, but on the paths of Anthropic's API.

    {"error": {"message": str, "type": str, "param": str | null, "code": str | null}}

The text comes from octavo.errors or from the catalogue below, never from an exception that we do not know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import orjson
from starlette.responses import Response

from octavo.errors import CapacityError, EngineError, InvalidRequest, NotFound, OctavoError, PermissionDenied
from octavo.server.anthropic.errors import anthropic_error

MAX_COMPARED = 64  # characters of a path
CLOSE = {"connection": "close"}
ANTHROPIC_PATHS = "/v1/messages"


class JSONResponse(Response):
    """A value as JSON, by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


class MethodNotAllowed(InvalidRequest):
    status = 405
    code = "method_not_allowed"


class RequestTimeout(InvalidRequest):
    status = 408
    code = "request_timeout"


class UnsupportedMediaType(InvalidRequest):
    status = 415
    code = "unsupported_media_type"


class MisdirectedRequest(InvalidRequest):
    status = 421
    code = "invalid_host"


def unknown_url(path: str, known: Iterable[str]) -> NotFound:
    """Name the nearest path that there is, for bases are given with /v1 and without."""
    import difflib  # no error, no need

    near = [name for name in known if path.rstrip("/").endswith(name) or name == f"/v1{path.rstrip('/')}"]
    near = near or difflib.get_close_matches(path[:MAX_COMPARED], [name for name in known if "{" not in name], n=1, cutoff=0.8)
    hint = f"did you mean {near[0]}?" if near else "see /docs for those there are"
    return NotFound(f"there is no such URL here; {hint}", code="unknown_url")


def unknown_model(served: tuple[str, ...]) -> NotFound:
    return NotFound(f"the model does not exist here; this server has {', '.join(served)}", param="model")


def method_not_allowed() -> MethodNotAllowed:
    return MethodNotAllowed("this URL does not take that method; the Allow header names those it takes")


def origin_not_allowed() -> PermissionDenied:
    return PermissionDenied("requests from another web origin are refused; --allowed-origins lets one in", code="origin_not_allowed")


def invalid_host() -> MisdirectedRequest:
    return MisdirectedRequest(
        "the Host header names no host of this server, which listens on loopback only; "
        "use 127.0.0.1 or localhost, or start it with --allowed-host NAME"
    )


def internal_error() -> EngineError:
    return EngineError("the server failed on this request; its log has the details under the x-request-id")


def model_loading() -> CapacityError:
    return CapacityError("the model is being loaded; try again in a moment", code="model_loading")


def draining() -> CapacityError:
    return CapacityError("the server is shutting down", code="server_draining")


def overloaded(state: str, limit: str, retry_after_s: float) -> CapacityError:
    return CapacityError(f"{state} and the limit is {limit}; try again in a moment", retry_after_s=retry_after_s)


def error_object(error: OctavoError) -> dict[str, Any]:
    kind = "server_error" if error.status >= 500 else error.type
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def error_response(error: OctavoError, path: str) -> JSONResponse:
    """Return the answer for `error` on a request to `path`, with the headers that its kind needs."""
    headers: dict[str, str] = {}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, CapacityError):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.status in (408, 413) or error.code == "server_draining":
        headers |= CLOSE  # the rest of the body is not worth reading
    shape = anthropic_error if path.startswith(ANTHROPIC_PATHS) else error_object
    return JSONResponse(shape(error), error.status, headers)
