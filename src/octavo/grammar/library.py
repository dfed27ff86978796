"""Whether llguidance is there, which does the parsing. It is an extra: only requests for structured output need it."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from octavo.errors import InvalidRequest


@cache
def is_installed() -> bool:
    return find_spec("llguidance") is not None


def require(param: str) -> None:
    """Raise InvalidRequest, which names `param` and the way out, where the library is not installed."""
    if not is_installed():
        raise InvalidRequest(
            f"{param} asks for structured output, which this installation cannot hold an answer to; pip install 'octavo[grammar]'",
            code="unsupported_value",
            param=param,
        )
