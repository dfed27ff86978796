"""POST /v1/completions: text or token ids in, up to 32 prompts at once, choices in the order of the prompts.

body -> CompletionRequest -> Prompts -> events -> chunks, folded unless streamed, as in chat.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.client.outputs import Logprob, PositionLogprobs
from octavo.errors import InvalidRequest
from octavo.server.body import read_json_object
from octavo.server.disconnect import until_disconnect
from octavo.server.errors import JSONResponse
from octavo.server.openai.generation import Events, Header, Prompt, Usage, generate
from octavo.server.openai.models import check_model
from octavo.server.openai.sampling import check_max_tokens, check_text_length, room_for_answer, sampling_params
from octavo.server.openai.schemas import CompletionRequest
from octavo.server.openai.validation import check_stream_options, parse_body, wants_usage
from octavo.server.sse import EventStream
from octavo.server.state import Engine, ServerState

DEFAULT_MAX_TOKENS = 16  # OpenAI's

Chunks = AsyncGenerator[dict[str, Any], None]


async def create_completion(request: Request) -> Response:
    state: ServerState = request.app.state.server
    engine = state.admit()
    body = parse_body(CompletionRequest, await read_json_object(request, state.config.max_body_bytes))
    check_model(engine, body.model)
    _check_combinations(body)
    prompts = await state.in_text_pool(_encode, engine, body)
    name = f"cmpl-{request.state.request_id}"
    header = Header(name, "text_completion", body.model, state.system_fingerprint, with_usage=wants_usage(body))
    events = generate(state, prompts, request_id=name, cache_salt=request.state.cache_salt, arrival_s=request.state.arrival_s)
    chunks = _chunks(header, events, prompts, echo=bool(body.echo))
    if body.stream:
        return EventStream(chunks)
    return JSONResponse(await until_disconnect(request.receive, _fold(chunks)))


def _check_combinations(body: CompletionRequest) -> None:
    check_stream_options(body)
    if body.best_of not in (None, body.n or 1):
        raise InvalidRequest("best_of must equal n: choices are not ranked here", param="best_of")
    if body.echo and body.logprobs is not None:
        raise InvalidRequest("echo with logprobs is not supported: prompts get no logprobs", code="unsupported_parameter", param="echo")


def _encode(engine: Engine, body: CompletionRequest) -> list[Prompt]:
    """Return the prompts, tokenised and checked. Runs off the event loop."""
    return [_prompt(prompt, engine, body) for prompt in body.prompt]


def _prompt(prompt: str | list[int], engine: Engine, body: CompletionRequest) -> Prompt:
    if isinstance(prompt, str):
        check_text_length([prompt], engine, "prompt")
        text, token_ids = prompt, engine.tokenizer.encode(prompt)
    else:
        vocab_size = engine.ready.vocab_size
        if max(prompt) >= vocab_size:
            raise InvalidRequest(f"a prompt holds a token id outside the model's vocabulary, 0..{vocab_size - 1}", param="prompt")
        text, token_ids = engine.tokenizer.decode(prompt) if body.echo else "", prompt
    max_model_len = engine.ready.max_model_len
    room_for_answer(len(token_ids), max_model_len, "prompt")
    max_tokens = body.max_tokens or min(DEFAULT_MAX_TOKENS, max_model_len - len(token_ids))
    check_max_tokens(max_tokens, len(token_ids), max_model_len, "prompt")
    return Prompt(token_ids, sampling_params(body, engine.generation, max_tokens=max_tokens, logprobs=body.logprobs), text)


async def _chunks(header: Header, events: Events, prompts: list[Prompt], *, echo: bool) -> Chunks:
    usage = Usage(prompts)
    n = prompts[0].params.n
    offsets: dict[int, int] = {}  # choice -> characters before its next token
    async with aclosing(events):
        async for index, event in events:
            usage.see(index, event)
            text = event.text
            if index not in offsets:
                offsets[index] = 0
                text = prompts[index // n].text + text if echo else text
            if text or event.logprobs or event.finish_reason:
                logprobs = None
                if event.logprobs:
                    logprobs = _logprobs(event.logprobs, offsets[index])
                    offsets[index] += sum(len(token) for token in logprobs["tokens"])
                yield header.chunk(
                    [
                        {
                            "index": index,
                            "text": text,
                            "logprobs": logprobs,
                            "finish_reason": event.finish_reason,
                            "stop_reason": event.stop_reason,
                        }
                    ]
                )
    if header.with_usage:
        yield header.chunk([], usage.as_dict())


async def _fold(chunks: Chunks) -> dict[str, Any]:
    """Return the whole answer that the chunks make."""
    choices: dict[int, dict[str, Any]] = {}
    async with aclosing(chunks):
        async for chunk in chunks:
            for new in chunk["choices"]:
                old = choices.get(new["index"])
                choices[new["index"]] = new if old is None else _joined(old, new)
    return chunk | {"choices": [choices[index] for index in sorted(choices)]}


def _joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return one choice that is `old` continued by `new`."""
    logprobs = old["logprobs"]
    if new["logprobs"] is not None:
        logprobs = {key: old["logprobs"][key] + values for key, values in new["logprobs"].items()} if logprobs else new["logprobs"]
    return new | {"text": old["text"] + new["text"], "logprobs": logprobs}


def _logprobs(positions: list[PositionLogprobs], offset: int) -> dict[str, Any]:
    tokens = [_text(position.sampled) for position in positions]
    return {
        "tokens": tokens,
        "token_logprobs": [position.sampled.logprob for position in positions],
        "top_logprobs": [
            {_text(candidate): candidate.logprob for candidate in (position.sampled, *position.top)} for position in positions
        ],
        "text_offset": [offset + sum(len(token) for token in tokens[:index]) for index in range(len(tokens))],
    }


def _text(candidate: Logprob) -> str:
    return candidate.token_bytes.decode("utf-8", "replace")
