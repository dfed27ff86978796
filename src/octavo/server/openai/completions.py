"""POST /v1/completions: text or token ids in, up to 32 prompts at once, choices in the order of the prompts.

With echo the prompt comes first, with logprobs those of its tokens too: null
for the first one. `max_tokens` 0 then gives the prompt alone: the engine draws a token, for that is how it ends a prompt,
and it is not shown.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from octavo.client.outputs import PositionLogprobs, RequestOutput
from octavo.constraints import StructuredOutputsParams
from octavo.errors import InvalidRequest
from octavo.server.openai.answering import Chunks, Question, read_question, respond
from octavo.server.openai.events import paced_events
from octavo.server.openai.generation import Events, Prompt, Usage
from octavo.server.openai.logprobs import TextLogprobs, TokenNames, as_prompt_logprobs, joined, only_top
from octavo.server.openai.models import check_model
from octavo.server.openai.sampling import (
    check_in_vocabulary,
    check_max_tokens,
    check_text_length,
    room_for_answer,
    sampling_params,
    truncated,
)
from octavo.server.openai.schemas import CompletionRequest
from octavo.server.state import Engine, ServerState
from octavo.server.structured import is_asked_for, read_constraint
from octavo.text.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 16  # OpenAI's


async def create_completion(request: Request) -> Response:
    return await answer_completion(request)


async def answer_completion(request: Request, given: dict[str, Any] | None = None) -> Response:
    """Return the answer to a completion, whose body, when it has been read already, is `given`."""
    state: ServerState = request.app.state.server
    question = await read_question(request, CompletionRequest, "cmpl", "text_completion", given)
    body, engine = question.body, state.engine
    check_model(engine, body.model)
    _check_combinations(body)
    constraint = None
    if is_asked_for(body):
        tenant, usual = request.state.cache_salt, state.config.structured_outputs
        constraint = await state.in_grammar_pool(tenant, read_constraint, body, usual, state.sandbox)
    prompts = await state.in_text_pool(_prompts, engine, body, constraint)
    events = paced_events(request, body, prompts, question.header.id)
    return await respond(request, question, _chunks(question, prompts, engine.tokenizer, events), _fold)


def _check_combinations(body: CompletionRequest) -> None:
    if body.best_of not in (None, body.n or 1):
        raise InvalidRequest("best_of must equal n: choices are not ranked here", param="best_of")
    if body.max_tokens == 0 and not body.echo:
        raise InvalidRequest(
            "max_tokens must be at least 1; 0 is for echo, which gives the prompt back", code="integer_below_min_value", param="max_tokens"
        )


def _prompts(engine: Engine, body: CompletionRequest, constraint: StructuredOutputsParams | None) -> list[Prompt]:
    return [_prompt(prompt, engine, body, constraint) for prompt in body.prompt]


def _prompt(prompt: str | list[int], engine: Engine, body: CompletionRequest, constraint: StructuredOutputsParams | None) -> Prompt:
    tokenizer, max_model_len = engine.tokenizer, engine.ready.max_model_len
    if isinstance(prompt, str):
        if body.truncate_prompt_tokens is None:
            check_text_length([prompt], engine, "prompt")
        token_ids = tokenizer.encode(prompt, add_special_tokens=body.add_special_tokens is not False)
        if not token_ids:
            raise InvalidRequest("a prompt has no token; send at least one", param="prompt")
    else:
        check_in_vocabulary(prompt, engine, "prompt")
        token_ids = prompt
    kept = truncated(token_ids, body, max_model_len, DEFAULT_MAX_TOKENS if body.max_tokens is None else max(1, body.max_tokens))
    text = prompt if isinstance(prompt, str) and kept is token_ids else tokenizer.decode(kept) if body.echo else ""
    room = room_for_answer(len(kept), max_model_len, "prompt")
    max_tokens = min(DEFAULT_MAX_TOKENS, room) if body.max_tokens is None else max(1, body.max_tokens)
    check_max_tokens(max_tokens, len(kept), max_model_len, "prompt")
    asked = [count for count in (body.prompt_logprobs, body.logprobs if body.echo else None) if count is not None]
    params = sampling_params(
        body,
        engine.generation,
        max_tokens=max_tokens,
        logprobs=body.logprobs,
        prompt_logprobs=max(asked) if asked else None,
        structured_outputs=constraint,
    )
    return Prompt(kept, params, text)


class _Choice:
    """One choice on its way to chunks: its prompt goes out with its first token."""

    def __init__(self, index: int, prompt: Prompt, body: CompletionRequest, tokenizer: Tokenizer) -> None:
        self._index = index
        self._prompt = prompt
        self._body = body
        self._names = TokenNames(as_ids=bool(body.return_tokens_as_token_ids))
        self._logprobs = TextLogprobs(self._names)
        self._tokenizer = tokenizer
        self._scored: list[PositionLogprobs] = []
        self._has_begun = False

    def feed(self, event: RequestOutput) -> dict[str, Any] | None:
        """Return the chunk's choice for one event, or None when there is nothing to say yet."""
        self._scored += event.prompt_logprobs or ()
        if not (event.token_ids or event.finish_reason):
            return None
        text, logprobs, more = event.text, None, {}
        if not self._has_begun:
            self._has_begun = True
            more = self._about_prompt()
            if self._body.echo:
                text = self._prompt.text + text
                logprobs = self._prompt_logprobs()
        if event.logprobs:
            logprobs = joined(logprobs, self._logprobs.of(event.logprobs))
        if self._body.return_token_ids:
            more["token_ids"] = event.token_ids
        if not (text or logprobs or more or event.finish_reason):
            return None
        return {
            "index": self._index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": event.finish_reason,
            "stop_reason": event.stop_reason,
        } | more

    def _about_prompt(self) -> dict[str, Any]:
        """Return what was asked of the prompt beside its text."""
        more: dict[str, Any] = {}
        if self._body.return_token_ids:
            more["prompt_token_ids"] = self._prompt.token_ids
        if self._body.prompt_logprobs is not None:
            more["prompt_logprobs"] = [None, *as_prompt_logprobs(only_top(self._scored, self._body.prompt_logprobs))]
        return more

    def _prompt_logprobs(self) -> dict[str, Any] | None:
        if self._body.logprobs is None:
            return None
        first = self._prompt.token_ids[0]
        is_shown = not self._tokenizer.is_special(first)
        head = self._logprobs.of_first(first, self._tokenizer.token_bytes(first), is_shown=is_shown)
        return joined(head, self._logprobs.of(only_top(self._scored, self._body.logprobs)))


async def _chunks(question: Question[CompletionRequest], prompts: list[Prompt], tokenizer: Tokenizer, events: Events) -> Chunks:
    body, header = question.body, question.header
    usage = Usage(prompts)
    n = prompts[0].params.n
    choices = [_Choice(index, prompts[index // n], body, tokenizer) for index in range(n * len(prompts))]
    async with aclosing(events):
        async for index, event in events:
            shown = _without_answer(event) if body.max_tokens == 0 else event
            usage.see(index, shown)
            choice = choices[index].feed(shown)
            if choice is not None:
                yield header.chunk([choice], usage.as_dict() if header.with_running_usage else None)
    if header.with_usage:
        yield header.chunk([], usage.as_dict())


def _without_answer(event: RequestOutput) -> RequestOutput:
    reason = event.finish_reason and "length"
    return replace(event, text="", token_ids=[], logprobs=None, finish_reason=reason, stop_reason=None, num_output_tokens=0)


async def _fold(chunks: Chunks) -> dict[str, Any]:
    """Return the whole answer that the chunks make."""
    choices: dict[int, dict[str, Any]] = {}
    async with aclosing(chunks):
        async for chunk in chunks:
            for new in chunk["choices"]:
                old = choices.get(new["index"])
                choices[new["index"]] = new if old is None else _continued(old, new)
    return chunk | {"choices": [choices[index] for index in sorted(choices)]}


def _continued(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return one choice that is `old` continued by `new`."""
    both = old | new | {"text": old["text"] + new["text"], "logprobs": joined(old["logprobs"], new["logprobs"])}
    if "token_ids" in new:
        both["token_ids"] = old["token_ids"] + new["token_ids"]
    return both
