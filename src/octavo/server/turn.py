"""One turn of a conversation: a ChatRequest to the parts of its answers.

Chat completions, responses and messages all come this way; they differ in the bodies that become a ChatRequest, and in
what they make of the parts.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request

from octavo.constraints import StructuredOutputsParams
from octavo.errors import InvalidRequest
from octavo.metrics.catalogue import RequestType
from octavo.metrics.recorder import MetricsRecorder
from octavo.params import SamplingParams
from octavo.parsers.deltas import CallBegin
from octavo.server.answers import Parts, Reading, begins_thinking, paced_parts, read_answers
from octavo.server.openai.events import salted_events
from octavo.server.openai.generation import Prompt, Usage
from octavo.server.openai.models import check_model
from octavo.server.openai.sampling import check_max_tokens, room_for_answer, sampling_params, truncated
from octavo.server.openai.schemas import ChatRequest, TokenizeChatRequest
from octavo.server.state import Engine, ServerState
from octavo.server.structured import behind_thoughts, is_asked_for
from octavo.server.tool_use import ToolUse, read_tool_use
from octavo.text.conversation import validate_messages
from octavo.text.tools import Tool


class Turn(msgspec.Struct, frozen=True):
    """`parts` are generated as they are asked for; `usage` counts those that have come."""

    prompt: Prompt
    parts: Parts
    usage: Usage


async def open_turn(request: Request, body: ChatRequest, name: str, api: RequestType, *, is_streamed: bool) -> Turn:
    """Return the turn that `body` asks for, under the request id `name`. `api`, `is_streamed`: how it was asked for, for the
    metrics. Raises RequestError and CapacityError."""
    state: ServerState = request.app.state.server
    engine = state.admit()
    check_model(engine, body.model)
    check_combinations(body)
    use, token_ids = await _read(state, engine, body, request.state.cache_salt)
    reading = _reading(state, engine, body, use, token_ids)
    constraint = use.constraint
    if constraint is not None and not state.config.structured_outputs.enable_in_reasoning:
        constraint = behind_thoughts(constraint, reading.thinking, engine.tokenizer, is_begun=reading.begins_thinking)
    params = _params(body, engine, len(token_ids), constraint)
    if reading.looks_for_any(engine.tokenizer.control_tokens):
        params = msgspec.structs.replace(params, skip_special_tokens=False)
    prompt = Prompt(token_ids, params, _echo(body))
    usage = Usage([prompt])
    parts = read_answers(salted_events(request, body, [prompt], name), reading, usage, params.n)
    if reading.calls is not None:
        parts = _counted(parts, state.metrics, api, is_streamed)
    interval = body.stream_interval or state.config.stream_interval
    return Turn(prompt, parts if interval == 1 else paced_parts(parts, interval), usage)


async def _counted(parts: Parts, metrics: MetricsRecorder, api: RequestType, is_streamed: bool) -> Parts:
    """Yield the same parts; count each answer that was looked through for tool calls, when it ends."""
    with_calls: set[int] = set()
    async with aclosing(parts):
        async for part in parts:
            if any(isinstance(delta, CallBegin) for delta in part.deltas):
                with_calls.add(part.index)
            if part.finish_reason is not None:
                metrics.count_parsed(api, is_streamed=is_streamed, has_calls=part.index in with_calls)
            yield part


async def count_prompt_tokens(request: Request, body: ChatRequest) -> int:
    """Return how many tokens the prompt of the turn would have. Raises RequestError and CapacityError."""
    state: ServerState = request.app.state.server
    engine = state.engine
    check_model(engine, body.model)
    _, token_ids = await _read(state, engine, body, request.state.cache_salt)
    return len(token_ids)


def check_combinations(body: ChatRequest) -> None:
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        raise InvalidRequest("max_tokens and max_completion_tokens differ; send one of them", param="max_tokens")
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs true", param="top_logprobs")


async def _read(state: ServerState, engine: Engine, body: ChatRequest, tenant: str) -> tuple[ToolUse, list[int]]:
    """Return what is to become of tools and format, and the prompt. Raises RequestError."""
    use = await state.in_grammar_pool(tenant, _read_tool_use, state, engine, body) if is_asked_for(body) else None
    return await state.in_text_pool(_read_prompt, state, engine, body, use)


def _read_tool_use(state: ServerState, engine: Engine, body: ChatRequest) -> ToolUse:
    return read_tool_use(body, state.answer_format.calls, engine.tokenizer, state.config.structured_outputs, state.sandbox)


def _read_prompt(state: ServerState, engine: Engine, body: ChatRequest, use: ToolUse | None) -> tuple[ToolUse, list[int]]:
    """Runs off the event loop, for a prompt may be long."""
    use = use or _read_tool_use(state, engine, body)
    return use, _prompt_token_ids(engine, body, use.offered)


def _prompt_token_ids(engine: Engine, body: ChatRequest, tools: list[Tool]) -> list[int]:
    """Return the prompt, truncated if that is asked for."""
    is_whole = body.truncate_prompt_tokens is None
    kwargs = _template_kwargs(engine.chat.variables, body) if engine.chat is not None else {}
    token_ids = render(
        engine,
        body,
        tools=tools,
        documents=body.documents,
        template_kwargs=kwargs,
        max_prompt_tokens=engine.ready.max_model_len if is_whole else None,
    )
    return truncated(token_ids, body, engine.ready.max_model_len, body.max_tokens or body.max_completion_tokens or 1)


def render(
    engine: Engine,
    body: ChatRequest | TokenizeChatRequest,
    *,
    tools: list[Tool],
    documents: list[dict[str, str]] | None,
    template_kwargs: dict[str, Any],
    max_prompt_tokens: int | None,
) -> list[int]:
    """Return the conversation's token ids; the template checks the messages. Runs off the event loop."""
    if body.add_generation_prompt and body.continue_final_message:
        raise InvalidRequest("add_generation_prompt and continue_final_message cannot both be true", param="continue_final_message")
    if engine.chat is None:
        raise InvalidRequest("this model has no chat template; use /v1/completions, or start with --chat-template", param="messages")
    token_ids = engine.chat.render(
        body.messages,
        add_generation_prompt=not body.continue_final_message if body.add_generation_prompt is None else body.add_generation_prompt,
        continue_final_message=bool(body.continue_final_message),
        tools=tools or None,
        documents=documents,
        template_kwargs=template_kwargs,
        max_prompt_tokens=max_prompt_tokens,
    )
    return engine.tokenizer.with_special_tokens(token_ids) if body.add_special_tokens else token_ids


def _template_kwargs(variables: frozenset[str], body: ChatRequest) -> dict[str, Any]:
    """Return chat_template_kwargs with the reasoning effort, in the word that this template has for it. Raises InvalidRequest."""
    kwargs = dict(body.chat_template_kwargs or {})
    effort = body.reasoning_effort
    if effort is None:
        return kwargs
    if "reasoning_effort" in variables:
        return {"reasoning_effort": effort} | kwargs
    switch = next((name for name in ("enable_thinking", "thinking") if name in variables), None)
    if switch is not None:
        return {switch: effort != "none"} | kwargs
    if effort != "none":
        raise InvalidRequest(
            "this model's chat template knows no reasoning effort; leave reasoning_effort out",
            code="unsupported_parameter",
            param="reasoning_effort",
        )
    return kwargs


def _reading(state: ServerState, engine: Engine, body: ChatRequest, use: ToolUse, token_ids: list[int]) -> Reading:
    thinking = state.answer_format.thinking
    return Reading(
        calls=use.calls,
        thinking=thinking,
        schemas={tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in use.callable},
        max_calls=1 if body.parallel_tool_calls is False else None,
        calls_lead=use.calls_lead,
        begins_thinking=begins_thinking(thinking, engine.tokenizer, token_ids, _continued(body)),
        shows_reasoning=body.include_reasoning is not False,
    )


def _continued(body: ChatRequest) -> str | None:
    """Return the text that the answer continues, or None when it is an answer of its own."""
    if not body.continue_final_message:
        return None
    content = body.messages[-1].get("content")
    return content if isinstance(content, str) else ""


def _echo(body: ChatRequest) -> str:
    """Return what echo puts before the answer: a final message of the assistant, as the template took it."""
    if not body.echo or body.messages[-1].get("role") != "assistant":
        return ""
    return validate_messages(body.messages)[-1]["content"] or ""


def _params(body: ChatRequest, engine: Engine, num_prompt_tokens: int, constraint: StructuredOutputsParams | None) -> SamplingParams:
    max_model_len = engine.ready.max_model_len
    room = room_for_answer(num_prompt_tokens, max_model_len, "messages")
    if body.max_tokens is not None:
        check_max_tokens(body.max_tokens, num_prompt_tokens, max_model_len, "messages")
    max_tokens = min(room, body.max_tokens or body.max_completion_tokens or room)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return sampling_params(
        body,
        engine.generation,
        max_tokens=max_tokens,
        logprobs=logprobs,
        prompt_logprobs=body.prompt_logprobs,
        structured_outputs=constraint,
    )
