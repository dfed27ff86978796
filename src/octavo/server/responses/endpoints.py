"""POST /v1/responses and what can be done with a response that is stored.

body -> ResponsesRequest -> items -> ChatRequest -> Turn -> parts -> events. The answer that is not streamed is the last event's response.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequest, NotFound, RequestError
from octavo.server.answers import AnswerPart
from octavo.server.body import read_json_object
from octavo.server.disconnect import until_disconnect
from octavo.server.errors import JSONResponse
from octavo.server.openai.schemas import ChatRequest
from octavo.server.openai.validation import ignored_fields_header, parse_body
from octavo.server.responses.events import Event, ResponseWriter, new_id
from octavo.server.responses.items import Item, to_transcript
from octavo.server.responses.schemas import ResponsesRequest
from octavo.server.responses.store import StoredResponse
from octavo.server.sse import EventStream, Framing
from octavo.server.state import ServerState
from octavo.server.transcript import Transcript
from octavo.server.turn import Turn, open_turn

MAX_LISTED = 100
NOT_STREAMED_FIELDS = ("input", "include", "stream", "stream_options", "store", "cache_salt", "chat_template_kwargs")

_log = logging.getLogger("octavo.server")


async def create_response(request: Request) -> Response:
    state: ServerState = request.app.state.server
    state.admit()
    raw = await read_json_object(request, state.config.max_body_bytes)
    body, ignored = parse_body(ResponsesRequest, raw, ignore_unknown=state.config.ignore_unknown_fields)
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options needs stream true", param="stream_options")
    if body.store and not state.responses.is_open:
        raise InvalidRequest("this server stores no responses (--response-store-bytes 0); send store false", param="store")
    earlier = await _earlier_items(request, body)
    transcript = await state.in_text_pool(to_transcript, body.instructions, earlier, body.input)
    response_id = new_id("resp")
    try:
        turn = await open_turn(request, _as_chat(body, transcript), response_id, "responses", is_streamed=body.stream is True)
    except RequestError as error:
        raise transcript.in_terms_of_field(error) from None
    is_stored = body.store is not False and state.responses.is_open
    response = _empty_response(body, response_id, is_stored=is_stored)
    writer = ResponseWriter(response, with_logprobs="message.output_text.logprobs" in body.include)
    events = _events(request, body, turn, writer, earlier)
    headers = ignored_fields_header(ignored)
    if body.stream:
        return EventStream(events, headers, Framing(is_named=True, last=b"", error=writer.fail))
    try:
        await until_disconnect(request.receive, _drain(events))
    except RequestError as error:
        raise transcript.in_terms_of_field(error) from None
    return JSONResponse(writer.response, headers=headers)


async def retrieve_response(request: Request) -> Response:
    unknown = next((name for name in request.query_params if name not in ("include", "include[]", "stream")), None)
    if unknown is not None or request.query_params.get("stream", "false") != "false":
        raise InvalidRequest("a stored response is given whole; leave stream out", code="unsupported_parameter", param="stream")
    return JSONResponse((await _stored(request)).response)


async def delete_response(request: Request) -> Response:
    state: ServerState = request.app.state.server
    response_id = request.path_params["response_id"]
    if not await state.responses.delete(request.state.cache_salt, response_id):
        raise _no_such_response("response_id")
    return JSONResponse({"id": response_id, "object": "response", "deleted": True})


async def cancel_response(request: Request) -> Response:
    """Only what runs in the background can be cancelled, and nothing does: close the connection of one that streams."""
    await _stored(request)
    raise InvalidRequest("only background responses can be cancelled; this one has ended", param="response_id")


async def list_input_items(request: Request) -> Response:
    items = (await _stored(request)).input
    query = request.query_params
    try:
        limit = int(query.get("limit", "20"))
    except ValueError:
        limit = 0
    if not 1 <= limit <= MAX_LISTED:
        raise InvalidRequest(f"limit must lie in 1..{MAX_LISTED}", param="limit")
    if query.get("order", "desc") not in ("asc", "desc"):
        raise InvalidRequest("order must be asc or desc", param="order")
    if query.get("order", "desc") == "desc":
        items = items[::-1]
    after = query.get("after")
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise InvalidRequest("after names no input item of this response", param="after")
        items = items[ids.index(after) + 1 :]
    page = items[:limit]
    return JSONResponse(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(items) > len(page),
        }
    )


async def _stored(request: Request) -> StoredResponse:
    state: ServerState = request.app.state.server
    found = await state.responses.get(request.state.cache_salt, request.path_params["response_id"])
    if found is None:
        raise _no_such_response("response_id")
    return found


def _no_such_response(param: str) -> NotFound:
    return NotFound("there is no such response here; they are kept in memory, and the oldest go first", code="not_found", param=param)


async def _earlier_items(request: Request, body: ResponsesRequest) -> list[Item]:
    """Return the conversation that the request goes on with. Raises NotFound."""
    if body.previous_response_id is None:
        return []
    state: ServerState = request.app.state.server
    found = await state.responses.get(request.state.cache_salt, body.previous_response_id)
    if found is None:
        raise _no_such_response("previous_response_id")
    return found.conversation


def _as_chat(body: ResponsesRequest, transcript: Transcript) -> ChatRequest:
    wants_logprobs = "message.output_text.logprobs" in body.include
    if body.top_logprobs and not wants_logprobs:
        raise InvalidRequest('top_logprobs needs "message.output_text.logprobs" in include', param="top_logprobs")
    values: dict[str, Any] = {
        "model": body.model,
        "messages": transcript.messages,
        "tools": None if body.tools is None else [_as_chat_tool(tool) for tool in body.tools],
        "tool_choice": _as_chat_choice(body.tool_choice),
        "response_format": _as_chat_format(body),
        "structured_outputs": body.structured_outputs,
        "parallel_tool_calls": body.parallel_tool_calls,
        "reasoning_effort": body.reasoning.effort if body.reasoning is not None else None,
        "max_completion_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "min_p": body.min_p,
        "seed": body.seed,
        "ignore_eos": body.ignore_eos,
        "logprobs": wants_logprobs or None,
        "top_logprobs": body.top_logprobs if wants_logprobs else None,
        "chat_template_kwargs": body.chat_template_kwargs,
        "cache_salt": body.cache_salt,
    }
    return ChatRequest(**values)


def _as_chat_tool(tool: Any) -> Any:
    """{"type": "function", "name": ...} -> {"type": "function", "function": {"name": ...}}; what is none is left to be refused."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _as_chat_choice(choice: Any) -> Any:
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return _as_chat_tool(choice)  # a function's name stands where a tool's does
    fields = {name: value for name, value in choice.items() if name != "type"}
    if isinstance(fields.get("tools"), list):
        fields["tools"] = [_as_chat_tool(tool) for tool in fields["tools"]]
    return {"type": "allowed_tools", "allowed_tools": fields}


def _as_chat_format(body: ResponsesRequest) -> Any:
    """{"type": "json_schema", "name": ...} -> {"type": "json_schema", "json_schema": {"name": ...}}."""
    asked = body.text.format if body.text is not None else None
    if not isinstance(asked, dict) or asked.get("type") != "json_schema":
        return asked
    return {"type": "json_schema", "json_schema": {name: value for name, value in asked.items() if name != "type"}}


def _empty_response(body: ResponsesRequest, response_id: str, *, is_stored: bool) -> dict[str, Any]:
    """Return the response before there is any output: what was asked, and what stands for what was not."""
    asked = body.model_dump(exclude=set(NOT_STREAMED_FIELDS))
    return asked | {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "metadata": body.metadata or {},
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": is_stored,
        "text": {"format": (body.text.format if body.text is not None else None) or {"type": "text"}},
        "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
        "tools": body.tools or [],
        "top_logprobs": body.top_logprobs or 0,
        "truncation": "disabled",
        "usage": None,
    }


async def _events(
    request: Request, body: ResponsesRequest, turn: Turn, writer: ResponseWriter, earlier: list[Item]
) -> AsyncGenerator[Event, None]:
    last: AnswerPart | None = None
    async with aclosing(turn.parts) as parts:
        async for part in parts:
            if last is None:  # not before: what fails before the first token is answered with its own status
                for event in writer.begin():
                    yield event
            last = part
            for event in writer.write(part):
                yield event
    is_whole = last is not None and last.finish_reason != "length"
    events = writer.end(turn.usage, is_whole=is_whole, completed_at=int(time.time()))
    if writer.response["store"]:  # before the client hears of the end, and asks for it
        given = [_with_id(item) for item in body.input]
        conversation = [*earlier, *given, *writer.response["output"]]
        await request.app.state.server.responses.put(request.state.cache_salt, StoredResponse(writer.response, given, conversation))
    for event in events:
        yield event


def _with_id(item: Item) -> Item:
    """Return an input item as it is listed: with a type and an id, and content in parts."""
    kind = item.get("type", "message")
    listed = {"type": kind, "id": new_id({"message": "msg", "reasoning": "rs"}.get(kind, "fc")), "status": "completed"} | item
    if kind == "message" and isinstance(item.get("content"), str):
        part = "output_text" if item.get("role") == "assistant" else "input_text"
        listed["content"] = [{"type": part, "text": item["content"]} | ({"annotations": []} if part == "output_text" else {})]
    return listed


async def _drain(events: AsyncGenerator[Event, None]) -> None:
    async with aclosing(events):
        async for _ in events:
            pass
