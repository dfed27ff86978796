"""A request's body as a JSON object: counted while it streams in, then read strictly.

Only `application/json` in UTF-8, no content encoding. Strict JSON: no NaN or Infinity, no comments, nothing after the
object. Depth is bounded by the parser (1,024), the number of values by
MAX_QUOTES and MAX_BRACKETS.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import orjson
from starlette.requests import Request

from octavo.errors import InvalidRequest, PayloadTooLarge
from octavo.server.disconnect import ClientDisconnected
from octavo.server.errors import RequestTimeout, UnsupportedMediaType

BODY_TIMEOUT_S = 30.0
MAX_QUOTES = 900_000  # reading very many small values would hold up every other request
MAX_BRACKETS = 250_000

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_KEY_BEFORE = re.compile(rb'"([A-Za-z_]{1,64})"\s*:\s*$')


async def read_json_object(request: Request, max_bytes: int) -> dict[str, Any]:
    """Return the body. Raises UnsupportedMediaType, PayloadTooLarge, RequestTimeout or InvalidRequest."""
    _check_headers(request, max_bytes)
    body = await _read(request, max_bytes)
    return parse_json_object(body)


def parse_json_object(body: bytes) -> dict[str, Any]:
    """Return `body` as a JSON object. Raises InvalidRequest: invalid_json, invalid_encoding, invalid_type, invalid_value,
    body_too_complex."""
    if body.count(b'"') > MAX_QUOTES or body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
        raise InvalidRequest(
            f"the body has too many values: more than {MAX_QUOTES:,} quotes or {MAX_BRACKETS:,} opening brackets", code="body_too_complex"
        )
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _named(body, error) from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object", code="invalid_type")
    return value


def _check_headers(request: Request, max_bytes: int) -> None:
    content_type = request.headers.get("content-type", "")
    media_type, _, parameters = content_type.partition(";")
    if media_type.strip().lower() != "application/json":
        raise UnsupportedMediaType("send the body as Content-Type: application/json")
    charset = parameters.lower().partition("charset=")[2].strip().strip('"')
    if charset not in ("", "utf-8", "utf8"):
        raise UnsupportedMediaType("the body must be UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("compressed bodies are not taken; send it as it is", code="unsupported_content_encoding")
    length = request.headers.get("content-length")
    if length is not None and int(length) > max_bytes:
        raise _too_large(max_bytes)


async def _read(request: Request, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                piece = message.get("body", b"")
                size += len(piece)
                if size > max_bytes:
                    raise _too_large(max_bytes)
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
    except TimeoutError:
        raise RequestTimeout(f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s") from None


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is larger than {max_bytes:,} bytes, the limit of this server (--max-body-bytes)")


def _named(body: bytes, error: orjson.JSONDecodeError) -> InvalidRequest:
    """Return which of the ways to be no JSON this is."""
    try:
        body.decode()
    except UnicodeDecodeError as bad:
        return InvalidRequest(f"the body is not valid UTF-8 at byte {bad.start}", code="invalid_encoding")
    offset = len(body.decode()[: error.pos].encode())  # orjson counts characters
    number = _NUMBER.match(body, offset)
    if number is not None and len(number.group()) < 4096 and float(number.group()) in (float("inf"), float("-inf")):
        key = _KEY_BEFORE.search(body[max(0, offset - 128) : offset])
        return InvalidRequest("a number in the body is too large for a double", param=key.group(1).decode() if key else None)
    return InvalidRequest(f"the body is no valid JSON: line {error.lineno}, column {error.colno}", code="invalid_json")
