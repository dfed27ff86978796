"""POST /v1/messages and /v1/messages/count_tokens, in Anthropic's shapes.

body -> MessagesRequest -> ChatRequest -> Turn -> parts -> events. The answer that is not streamed is the message that they build up.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequest, RequestError
from octavo.server.answers import AnswerPart
from octavo.server.anthropic.blocks import to_transcript
from octavo.server.anthropic.errors import anthropic_error
from octavo.server.anthropic.events import Event, MessageWriter
from octavo.server.anthropic.schemas import MAX_CACHE_CONTROL, TOOL_FIELDS, CountTokensRequest, MessagesRequest
from octavo.server.body import read_json_object
from octavo.server.disconnect import until_disconnect
from octavo.server.errors import JSONResponse
from octavo.server.openai.schemas import ChatRequest
from octavo.server.openai.validation import ignored_fields_header, parse_body
from octavo.server.sse import EventStream, Framing
from octavo.server.state import ServerState
from octavo.server.transcript import Transcript
from octavo.server.turn import Turn, count_prompt_tokens, open_turn

FRAMING = Framing(is_named=True, last=b"", error=anthropic_error)
THINKING_SWITCHES = ("enable_thinking", "thinking")


async def create_message(request: Request) -> Response:
    state: ServerState = request.app.state.server
    state.admit()
    raw = await read_json_object(request, state.config.max_body_bytes)
    body, ignored = parse_body(MessagesRequest, raw, ignore_unknown=state.config.ignore_unknown_fields)
    transcript = await state.in_text_pool(to_transcript, body.system, body.messages)
    message_id = f"msg_{request.state.request_id}"
    try:
        turn = await open_turn(request, _as_chat(state, body, transcript), message_id, "other", is_streamed=body.stream is True)
    except RequestError as error:
        raise transcript.in_terms_of_field(error) from None
    writer = MessageWriter(message_id, body.model)
    events = _events(turn, writer)
    headers = ignored_fields_header(ignored)
    if body.stream:
        return EventStream(events, headers, FRAMING)
    try:
        await until_disconnect(request.receive, _drain(events))
    except RequestError as error:
        raise transcript.in_terms_of_field(error) from None
    return JSONResponse(writer.message, headers=headers)


async def count_tokens(request: Request) -> Response:
    state: ServerState = request.app.state.server
    raw = await read_json_object(request, state.config.max_body_bytes)
    body, ignored = parse_body(CountTokensRequest, raw, ignore_unknown=state.config.ignore_unknown_fields)
    transcript = await state.in_text_pool(to_transcript, body.system, body.messages)
    try:
        count = await count_prompt_tokens(request, _as_chat(state, body, transcript))
    except RequestError as error:
        raise transcript.in_terms_of_field(error) from None
    return JSONResponse({"input_tokens": count}, headers=ignored_fields_header(ignored))


def _as_chat(state: ServerState, body: CountTokensRequest, transcript: Transcript) -> ChatRequest:
    """Return the chat request that the body comes to. A final message of the assistant is gone on with."""
    last = transcript.messages[-1]
    continues = last["role"] == "assistant" and "tool_calls" not in last
    choice = body.tool_choice
    values: dict[str, Any] = {
        "model": body.model,
        "messages": transcript.messages,
        "continue_final_message": continues or None,
        "tools": None if body.tools is None else [_as_chat_tool(tool, f"tools[{i}]") for i, tool in enumerate(body.tools)],
        "tool_choice": _as_chat_choice(body),
        "response_format": _as_chat_format(body),
        "parallel_tool_calls": False if choice is not None and choice.disable_parallel_tool_use else None,
        "reasoning_effort": _effort(state, body),
        "include_reasoning": body.thinking is not None and body.thinking.type != "disabled" and body.thinking.display != "omitted",
        "chat_template_kwargs": body.chat_template_kwargs,
    }
    if isinstance(body, MessagesRequest):
        values |= {
            "max_completion_tokens": body.max_tokens,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "top_k": body.top_k,
            "stop": body.stop_sequences,
            "cache_salt": body.cache_salt,
        }
    return ChatRequest(**values)


def _as_chat_tool(tool: Any, where: str) -> dict[str, Any]:
    if not isinstance(tool, dict):
        raise InvalidRequest(f"{where} must be an object", code="invalid_type", param=where)
    if tool.get("type", "custom") not in (None, "custom"):
        raise InvalidRequest(f"{where}.type: this server has no tools of its own", code="unsupported_value", param=f"{where}.type")
    unknown = next((name for name in tool if name not in TOOL_FIELDS), None)
    if unknown is not None:
        raise InvalidRequest(f"{where} has an unknown field", code="unknown_parameter", param=where)
    if tool.get("input_schema") is None:
        raise InvalidRequest(f"{where}.input_schema is missing", code="missing_required_parameter", param=f"{where}.input_schema")
    control = tool.get("cache_control")
    if control is not None and (not isinstance(control, dict) or len(control) > MAX_CACHE_CONTROL):
        raise InvalidRequest(f"{where}.cache_control must be an object", code="invalid_type", param=f"{where}.cache_control")
    function = {name: value for name, value in tool.items() if name not in ("type", "cache_control", "input_schema")}
    return {"type": "function", "function": function | {"parameters": tool["input_schema"]}}


def _as_chat_choice(body: CountTokensRequest) -> Any:
    choice = body.tool_choice
    if choice is None:
        return None
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice.type == "any" else choice.type


def _as_chat_format(body: CountTokensRequest) -> Any:
    """{"type": "json_schema", "schema": ...} -> {"type": "json_schema", "json_schema": {"name": ..., "schema": ...}}."""
    asked = body.output_config.format if body.output_config is not None else None
    if not isinstance(asked, dict) or asked.get("type") != "json_schema":
        return asked
    return {"type": "json_schema", "json_schema": {"name": "answer"} | {name: value for name, value in asked.items() if name != "type"}}


def _effort(state: ServerState, body: CountTokensRequest) -> str | None:
    """Return the reasoning effort that `thinking` and `output_config` come to. Raises InvalidRequest where nothing thinks."""
    effort = body.output_config.effort if body.output_config is not None else None
    chat = state.engine.chat
    variables = chat.variables if chat is not None else frozenset()
    has_switch = any(name in variables for name in THINKING_SWITCHES)
    if body.thinking is None:
        return effort
    if body.thinking.type == "disabled":
        return "none" if has_switch else effort
    if not (has_switch or "reasoning_effort" in variables or state.answer_format.thinking is not None):
        raise InvalidRequest("this model does not think; leave thinking out", code="unsupported_parameter", param="thinking")
    return effort or ("medium" if has_switch else None)


async def _events(turn: Turn, writer: MessageWriter) -> AsyncGenerator[Event, None]:
    last: AnswerPart | None = None
    async with aclosing(turn.parts) as parts:
        async for part in parts:
            if last is None:  # not before: what fails before the first token is answered with its own status
                for event in writer.begin(turn.usage):
                    yield event
            last = part
            for event in writer.write(part):
                yield event
    if last is not None:
        for event in writer.end(last, turn.usage):
            yield event


async def _drain(events: AsyncGenerator[Event, None]) -> None:
    async with aclosing(events):
        async for _ in events:
            pass
