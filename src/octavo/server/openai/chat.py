"""POST /v1/chat/completions.

body -> ChatRequest -> Prompt -> events -> chunks. A streamed answer is the chunks; any other is the same chunks folded.
A choice's first chunk has the role, its last one and only that one a finish_reason; the usage chunk comes after all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.client.outputs import Logprob, PositionLogprobs
from octavo.errors import InvalidRequest
from octavo.params import SamplingParams
from octavo.server.body import read_json_object
from octavo.server.disconnect import until_disconnect
from octavo.server.errors import JSONResponse
from octavo.server.openai.generation import Events, Header, Prompt, Usage, generate
from octavo.server.openai.models import check_model
from octavo.server.openai.sampling import check_max_tokens, room_for_answer, sampling_params
from octavo.server.openai.schemas import ChatRequest
from octavo.server.openai.validation import check_stream_options, parse_body, wants_usage
from octavo.server.sse import EventStream
from octavo.server.state import Engine, ServerState

Chunks = AsyncGenerator[dict[str, Any], None]


async def create_chat_completion(request: Request) -> Response:
    state: ServerState = request.app.state.server
    engine = state.admit()
    body = parse_body(ChatRequest, await read_json_object(request, state.config.max_body_bytes))
    check_model(engine, body.model)
    _check_combinations(body)
    token_ids = await state.in_text_pool(_render, engine, body)
    prompt = Prompt(token_ids, _params(body, engine, len(token_ids)))
    name = f"chatcmpl-{request.state.request_id}"
    header = Header(name, "chat.completion.chunk", body.model, state.system_fingerprint, with_usage=wants_usage(body))
    events = generate(state, [prompt], request_id=name, cache_salt=request.state.cache_salt, arrival_s=request.state.arrival_s)
    chunks = _chunks(header, events, Usage([prompt]))
    if body.stream:
        return EventStream(chunks)
    return JSONResponse(await until_disconnect(request.receive, _fold(chunks)))


def _check_combinations(body: ChatRequest) -> None:
    check_stream_options(body)
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        raise InvalidRequest("max_tokens and max_completion_tokens differ; send one of them", param="max_tokens")
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs true", param="top_logprobs")
    if body.add_generation_prompt and body.continue_final_message:
        raise InvalidRequest("add_generation_prompt and continue_final_message cannot both be true", param="continue_final_message")


def _render(engine: Engine, body: ChatRequest) -> list[int]:
    """Return the prompt's token ids; the template checks the messages. Runs off the event loop."""
    if engine.chat is None:
        raise InvalidRequest("this model has no chat template; use /v1/completions, or start with --chat-template", param="messages")
    return engine.chat.render(
        body.messages,
        add_generation_prompt=not body.continue_final_message if body.add_generation_prompt is None else body.add_generation_prompt,
        continue_final_message=bool(body.continue_final_message),
        template_kwargs=body.chat_template_kwargs,
        max_prompt_tokens=engine.ready.max_model_len,
    )


def _params(body: ChatRequest, engine: Engine, num_prompt_tokens: int) -> SamplingParams:
    max_model_len = engine.ready.max_model_len
    room = room_for_answer(num_prompt_tokens, max_model_len, "messages")
    if body.max_tokens is not None:
        check_max_tokens(body.max_tokens, num_prompt_tokens, max_model_len, "messages")
    max_tokens = min(room, body.max_tokens or body.max_completion_tokens or room)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return sampling_params(body, engine.generation, max_tokens=max_tokens, logprobs=logprobs)


async def _chunks(header: Header, events: Events, usage: Usage) -> Chunks:
    begun: set[int] = set()
    async with aclosing(events):
        async for index, event in events:
            usage.see(index, event)
            if index not in begun:
                begun.add(index)
                yield header.chunk([_choice(index, {"role": "assistant", "content": ""})])
            if event.text or event.logprobs or event.finish_reason:
                delta = {"content": event.text} if event.text else {}
                logprobs = {"content": [_position(position) for position in event.logprobs], "refusal": None} if event.logprobs else None
                yield header.chunk([_choice(index, delta, logprobs, event.finish_reason, event.stop_reason)])
    if header.with_usage:
        yield header.chunk([], usage.as_dict())


async def _fold(chunks: Chunks) -> dict[str, Any]:
    """Return the whole answer that the chunks make."""
    choices: dict[int, dict[str, Any]] = {}
    async with aclosing(chunks):
        async for chunk in chunks:
            for new in chunk["choices"]:
                index, delta = new["index"], new["delta"]
                if index not in choices:
                    choices[index] = {"index": index, "message": {"role": "assistant", "content": "", "refusal": None}, "logprobs": None}
                choice = choices[index]
                choice["message"]["content"] += delta.get("content", "")
                if new["logprobs"] is not None:
                    if choice["logprobs"] is None:
                        choice["logprobs"] = {"content": [], "refusal": None}
                    choice["logprobs"]["content"] += new["logprobs"]["content"]
                choice["finish_reason"] = new["finish_reason"]
                choice["stop_reason"] = new["stop_reason"]
    return chunk | {"object": "chat.completion", "choices": [choices[index] for index in sorted(choices)]}


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
