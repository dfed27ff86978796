"""Errors in Anthropic's shape: {"type": "error", "error": {"type": ..., "message": ...}}."""

from __future__ import annotations

from typing import Any

from octavo.errors import OctavoError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def anthropic_error(error: OctavoError) -> dict[str, Any]:
    """Return the body of an answer, or the event, that tells of `error`. The parameter's name stands in the message."""
    kind = _TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    message = error.message if error.param is None or error.param in error.message else f"{error.param}: {error.message}"
    return {"type": "error", "error": {"type": kind, "message": message}}
