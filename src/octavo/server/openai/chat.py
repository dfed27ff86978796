"""POST /v1/chat/completions.

body -> ChatRequest -> Turn -> parts -> chunks. A streamed answer is the chunks; any other is the same chunks folded.
A choice's first chunk has the role, its last one and only that one a finish_reason; the usage chunk comes after all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.client.outputs import Logprob, PositionLogprobs
from octavo.parsers.deltas import CallArguments, CallBegin, Content, Delta, Reasoning
from octavo.server.answers import AnswerPart
from octavo.server.body import read_json_object
from octavo.server.disconnect import until_disconnect
from octavo.server.errors import JSONResponse
from octavo.server.openai.generation import Header
from octavo.server.openai.schemas import ChatRequest
from octavo.server.openai.validation import check_stream_options, parse_body, wants_usage
from octavo.server.sse import EventStream
from octavo.server.state import ServerState
from octavo.server.turn import Turn, open_turn

Chunks = AsyncGenerator[dict[str, Any], None]


async def create_chat_completion(request: Request) -> Response:
    state: ServerState = request.app.state.server
    state.admit()
    body = parse_body(ChatRequest, await read_json_object(request, state.config.max_body_bytes))
    check_stream_options(body)
    name = f"chatcmpl-{request.state.request_id}"
    turn = await open_turn(request, body, name)
    header = Header(name, "chat.completion.chunk", body.model, state.system_fingerprint, with_usage=wants_usage(body))
    chunks = _chunks(header, turn)
    if body.stream:
        return EventStream(chunks)
    return JSONResponse(await until_disconnect(request.receive, _fold(chunks)))


async def _chunks(header: Header, turn: Turn) -> Chunks:
    begun: set[int] = set()
    async with aclosing(turn.parts) as parts:
        async for part in parts:
            if part.index not in begun:
                begun.add(part.index)
                yield header.chunk([_choice(part.index, {"role": "assistant", "content": ""})])
            for choice in _choices(part):
                yield header.chunk([choice])
    if header.with_usage:
        yield header.chunk([], turn.usage.as_dict())


def _choices(part: AnswerPart) -> list[dict[str, Any]]:
    """Return a part as one choice a delta: the first has its log-probabilities, the last its finish_reason."""
    event = part.event
    logprobs = {"content": [_position(position) for position in event.logprobs], "refusal": None} if event.logprobs else None
    deltas = [_delta(delta) for delta in part.deltas]
    if not deltas and (logprobs or part.finish_reason):
        deltas = [{}]
    choices = [_choice(part.index, delta) for delta in deltas]
    if choices:
        choices[0]["logprobs"] = logprobs
        choices[-1] |= {"finish_reason": part.finish_reason, "stop_reason": event.stop_reason}
    return choices


def _delta(delta: Delta) -> dict[str, Any]:
    match delta:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning": text, "reasoning_content": text}
        case CallBegin(index, call_id, name):
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


async def _fold(chunks: Chunks) -> dict[str, Any]:
    """Return the whole answer that the chunks make."""
    choices: dict[int, dict[str, Any]] = {}
    async with aclosing(chunks):
        async for chunk in chunks:
            for new in chunk["choices"]:
                index = new["index"]
                if index not in choices:
                    choices[index] = {"index": index, "message": {"role": "assistant", "content": "", "refusal": None}, "logprobs": None}
                choice = choices[index]
                _add(choice["message"], new["delta"])
                if new["logprobs"] is not None:
                    if choice["logprobs"] is None:
                        choice["logprobs"] = {"content": [], "refusal": None}
                    choice["logprobs"]["content"] += new["logprobs"]["content"]
                choice["finish_reason"] = new["finish_reason"]
                choice["stop_reason"] = new["stop_reason"]
    for choice in choices.values():
        message = choice["message"]
        if not message["content"] and "tool_calls" in message:
            message["content"] = None
    return chunk | {"object": "chat.completion", "choices": [choices[index] for index in sorted(choices)]}


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta to the message that it is part of."""
    for field in ("content", "reasoning", "reasoning_content"):
        if field in delta:
            message[field] = message.get(field, "") + delta[field]
    for call in delta.get("tool_calls", ()):
        if "id" in call:
            whole = {"id": call["id"], "type": "function", "function": dict(call["function"])}
            message.setdefault("tool_calls", []).append(whole)
        else:
            message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]


def _choice(
    index: int,
    delta: dict[str, Any],
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
    stop_reason: str | int | None = None,
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason, "stop_reason": stop_reason}


def _position(position: PositionLogprobs) -> dict[str, Any]:
    return _candidate(position.sampled) | {"top_logprobs": [_candidate(candidate) for candidate in position.top]}


def _candidate(candidate: Logprob) -> dict[str, Any]:
    return {"token": candidate.token_bytes.decode("utf-8", "replace"), "logprob": candidate.logprob, "bytes": list(candidate.token_bytes)}
