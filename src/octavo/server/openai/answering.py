"""What chat and text completions share: a request becomes a checked body with the header of its answer, and the chunks of
that answer are streamed, or folded into one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.body import read_json_object
from octavo.server.disconnect import until_disconnect
from octavo.server.errors import JSONResponse
from octavo.server.openai.generation import Header
from octavo.server.openai.schemas import RequestBody
from octavo.server.openai.validation import check_stream_options, ignored_fields_header, parse_body, wants_running_usage, wants_usage
from octavo.server.sse import EventStream
from octavo.server.state import ServerState

Asked = TypeVar("Asked", bound=RequestBody)
Chunks = AsyncGenerator[dict[str, Any], None]
Fold = Callable[[Chunks], Coroutine[Any, Any, dict[str, Any]]]


@dataclass(frozen=True)
class Question(Generic[Asked]):
    """`headers`: further HTTP headers of the answer."""

    body: Asked
    header: Header
    headers: dict[str, str]


async def read_question(
    request: Request, schema: type[Asked], id_prefix: str, chunk_object: str, given: dict[str, Any] | None = None
) -> Question[Asked]:
    """Return what `request` asks; `given` is its body, if that has been read already. Raises RequestError and CapacityError."""
    state: ServerState = request.app.state.server
    state.admit()
    raw = await read_json_object(request, state.config.max_body_bytes) if given is None else given
    body, ignored = parse_body(schema, raw, ignore_unknown=state.config.ignore_unknown_fields)
    check_stream_options(body)
    header = Header(
        f"{id_prefix}-{body.request_id or request.state.request_id}",
        chunk_object,
        body.model,
        state.system_fingerprint,
        with_usage=wants_usage(body),
        with_running_usage=wants_running_usage(body),
    )
    return Question(body, header, ignored_fields_header(ignored))


async def respond(request: Request, question: Question[Asked], chunks: Chunks, fold: Fold) -> Response:
    """Return the answer that the chunks make: as they come, or whole."""
    if question.body.stream:
        return EventStream(chunks, question.headers)
    return JSONResponse(await until_disconnect(request.receive, fold(chunks)), headers=question.headers)
