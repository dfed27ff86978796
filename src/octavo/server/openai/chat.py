"""POST /v1/chat/completions.

body -> ChatRequest -> Turn -> parts -> chunks. A streamed answer is the chunks; any other is the same chunks folded.
A choice's first chunk has the role, its last one and only that one a finish_reason; the usage chunk comes after all.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from octavo.parsers.deltas import CallArguments, CallBegin, Content, Delta, Reasoning
from octavo.server.answers import AnswerPart
from octavo.server.openai.answering import Chunks, Question, read_question, respond
from octavo.server.openai.logprobs import TokenNames, as_prompt_logprobs, only_top
from octavo.server.openai.schemas import ChatRequest
from octavo.server.turn import Turn, open_turn


async def create_chat_completion(request: Request) -> Response:
    return await answer_chat(request)


async def answer_chat(request: Request, given: dict[str, Any] | None = None) -> Response:
    """Return the answer to a chat, whose body, when it has been read already, is `given`."""
    question = await read_question(request, ChatRequest, "chatcmpl", "chat.completion.chunk", given)
    body = question.body
    turn = await open_turn(request, body, question.header.id, "chat_completions", is_streamed=body.stream is True)
    return await respond(request, question, _chunks(question, turn), _fold)


async def _chunks(question: Question[ChatRequest], turn: Turn) -> Chunks:
    body, header = question.body, question.header
    names = TokenNames(as_ids=bool(body.return_tokens_as_token_ids))
    scored: list[dict[str, Any] | None] = [None]  # of the prompt, whose first token has no logprob
    begun: set[int] = set()
    names_tool = isinstance(body.tool_choice, dict) and body.tool_choice.get("type") == "function"

    def chunk(choice: dict[str, Any]) -> dict[str, Any]:
        return header.chunk([choice], turn.usage.as_dict() if header.with_running_usage else None)

    async with aclosing(turn.parts) as parts:
        async for answered in parts:
            part = _of_named_tool(answered) if names_tool else answered
            if part.index == 0 and part.event.prompt_logprobs:
                scored += as_prompt_logprobs(only_top(part.event.prompt_logprobs, body.prompt_logprobs))
            if not (part.event.token_ids or part.finish_reason):
                continue
            if part.index not in begun:
                begun.add(part.index)
                first = chunk(_choice(part.index, {"role": "assistant", "content": turn.prompt.text}))
                if body.return_token_ids:
                    first["prompt_token_ids"] = turn.prompt.token_ids
                if body.prompt_logprobs is not None and part.index == 0:
                    first["prompt_logprobs"] = scored
                yield first
            for choice in _choices(part, names, with_token_ids=bool(body.return_token_ids)):
                yield chunk(choice)
    if header.with_usage:
        yield header.chunk([], turn.usage.as_dict())


def _of_named_tool(part: AnswerPart) -> AnswerPart:
    """Return the part as OpenAI ends it: a call that was asked for by name is no decision of the model's."""
    return replace(part, finish_reason="stop") if part.finish_reason == "tool_calls" else part


def _choices(part: AnswerPart, names: TokenNames, *, with_token_ids: bool) -> list[dict[str, Any]]:
    """Return a part as one choice a delta: the first has its log-probabilities and token ids, the last its finish_reason."""
    event = part.event
    logprobs = {"content": [names.chat(position) for position in event.logprobs], "refusal": None} if event.logprobs else None
    deltas = [_delta(delta) for delta in part.deltas]
    if not deltas and (logprobs or with_token_ids or part.finish_reason):
        deltas = [{}]
    choices = [_choice(part.index, delta) for delta in deltas]
    if choices:
        choices[0]["logprobs"] = logprobs
        if with_token_ids:
            choices[0]["token_ids"] = event.token_ids
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
    prompt: dict[str, Any] = {}
    async with aclosing(chunks):
        async for chunk in chunks:
            prompt |= {name: chunk[name] for name in ("prompt_token_ids", "prompt_logprobs") if name in chunk}
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
                if "token_ids" in new:
                    choice["token_ids"] = [*choice.get("token_ids", ()), *new["token_ids"]]
                choice["finish_reason"] = new["finish_reason"]
                choice["stop_reason"] = new["stop_reason"]
    for choice in choices.values():
        message = choice["message"]
        if not message["content"] and "tool_calls" in message:
            message["content"] = None
    return chunk | {"object": "chat.completion", "choices": [choices[index] for index in sorted(choices)]} | prompt


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
