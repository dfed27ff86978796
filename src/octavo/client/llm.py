"""`LLM`: the offline API. Prompts in, finished answers out, the engine in this very process: no server, no socket."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import index
from pathlib import Path
from typing import Any

import msgspec

from octavo.client.choice import Choice
from octavo.client.front import RequestMaker, check_generates, open_text_front
from octavo.client.outputs import PositionLogprobs, RequestOutput
from octavo.client.pooling import PoolFront
from octavo.client.pooling_calls import PooledAnswer, PoolingCalls, pair_up
from octavo.config.schema import CacheConfig, EngineConfig, ModelConfig, RuntimeConfig, SchedulerConfig
from octavo.engine.startup import start_engine
from octavo.errors import ConfigError, InvalidRequest, RequestFailed
from octavo.loaders.store import resolve_model
from octavo.messages.wire import GenerateRequest, PoolTask
from octavo.params import SamplingParams
from octavo.text.tokenizer import Tokenizer
from octavo.text.tools import validate_tools

Prompt = str | Sequence[int]
Message = dict[str, Any]


@dataclass(frozen=True)
class CompletionOutput:
    """One choice, whole. `logprobs` has one entry per output token; `cumulative_logprob` is their sum."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str
    stop_reason: str | int | None
    logprobs: list[PositionLogprobs] | None
    cumulative_logprob: float | None


@dataclass(frozen=True)
class Answer:
    """One prompt and its choices. `prompt` is None when token ids were given. `prompt_logprobs`, when asked for, has one entry
    a prompt token, the first None."""

    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int
    prompt_logprobs: list[PositionLogprobs | None] | None = None


class LLM:
    """A model, loaded. Keyword arguments are the fields of ModelConfig, CacheConfig, SchedulerConfig and RuntimeConfig.

    Raises StartupError. Not thread-safe: one call at a time.
    """

    def __init__(self, model: str | Path = ModelConfig.model, **settings: Any) -> None:
        config = _engine_config({"model": model, **settings})
        path = resolve_model(config.model.model)
        self._front = open_text_front(config.model, path)
        self._engine, self._ready = start_engine(config)
        self._maker = RequestMaker(self._front, self._ready.max_model_len, self._ready.vocab_size, config.model)

    def get_tokenizer(self) -> Tokenizer:
        return self._front.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """Return the sampling defaults of the model's own files."""
        stated = {name: getattr(self._front.generation, name) for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")}
        return SamplingParams(**{name: value for name, value in stated.items() if value is not None})

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[Answer]:
        """Return one Answer a prompt, in order. A prompt is text or token ids; parameters are shared or one a prompt.

        Raises RequestError for a bad prompt or parameter before anything runs, RequestFailed when the engine fails one.
        """
        listed = _listed(prompts)
        texts = [prompt if isinstance(prompt, str) else None for prompt in listed]
        token_ids = [self._front.tokenizer.encode(prompt) if isinstance(prompt, str) else _token_ids(prompt) for prompt in listed]
        return self._run(texts, token_ids, sampling_params, use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        use_tqdm: bool = True,
    ) -> list[Answer]:
        """Return one Answer a conversation (one conversation, or a list of them). Raises as generate does.

        The model is told of `tools`, in OpenAI's shape; calls of them stand in the answer's text as it writes them.
        """
        template = self._front.chat
        if template is None:
            raise InvalidRequest("the model has no chat template; use generate(), or give LLM a chat_template file", param="messages")
        offered = validate_tools(tools) if tools else None
        conversations = [messages] if messages and isinstance(messages[0], dict) else messages
        token_ids = [
            template.render(
                list(conversation),
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                tools=offered,
                template_kwargs=chat_template_kwargs,
            )
            for conversation in conversations
        ]
        return self._run([None] * len(token_ids), token_ids, sampling_params, use_tqdm)

    def embed(self, prompts: Prompt | Iterable[Prompt], *, truncate_prompt_tokens: int | None = None) -> list[PooledAnswer]:
        """Return each prompt's vector (`.outputs.embedding`), in order. `truncate_prompt_tokens`: cut longer prompts there, -1
        where the model ends; None refuses them.

        Raises RequestError, also for a model that does not do it, before anything runs, and RequestFailed."""
        return self._pooling().embed(_prompts(prompts), truncate_prompt_tokens)

    def encode(
        self,
        prompts: Prompt | Iterable[Prompt],
        *,
        pooling_task: PoolTask = "token_embed",
        use_activation: bool = True,
        truncate_prompt_tokens: int | None = None,
    ) -> list[PooledAnswer]:
        """Return each prompt's array (`.outputs.data`): embed one vector, token_embed one a token, classify the scores of the
        classes. Without `use_activation` vectors keep their length and scores are no probabilities. Raises as embed does."""
        return self._pooling().encode(_prompts(prompts), pooling_task, truncate_prompt_tokens, activate=use_activation)

    def classify(self, prompts: Prompt | Iterable[Prompt], *, truncate_prompt_tokens: int | None = None) -> list[PooledAnswer]:
        """Return each prompt's probabilities of the model's labels (`.outputs.probs`). Raises as embed does."""
        return self._pooling().classify(_prompts(prompts), truncate_prompt_tokens)

    def score(
        self, data_1: str | Sequence[str], data_2: str | Sequence[str], *, truncate_prompt_tokens: int | None = None
    ) -> list[PooledAnswer]:
        """Return how well two texts go together (`.outputs.score`): one with each of several, or two lists text by text. A
        cross-encoder's score, or the cosine of an embedding model's vectors. Raises as embed does."""
        return self._pooling().score(pair_up(data_1, data_2), truncate_prompt_tokens)

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget every cached prefix; return False while requests run, unless they are to be reset (they start over, same answer)."""
        return self._engine.reset_prefix_cache(reset_running_requests)

    def _pooling(self) -> PoolingCalls:
        return PoolingCalls(PoolFront(self._front, self._ready.max_model_len), self._engine)

    def _run(
        self,
        texts: list[str | None],
        prompts: list[list[int]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool,
    ) -> list[Answer]:
        check_generates(self._front)
        params = self._params_for(prompts, sampling_params)
        arrival_s = time.monotonic()
        requests = [list(self._maker.make(prompt, one, arrival_s=arrival_s)) for prompt, one in zip(prompts, params, strict=True)]
        choices = {
            request.request_id: Choice(str(number), index, request, self._front.tokenizer)
            for number, group in enumerate(requests)
            for index, request in enumerate(group)
        }
        events: dict[str, list[RequestOutput]] = {request_id: [] for request_id in choices}
        with _Progress(len(choices), enabled=use_tqdm) as progress:
            try:
                for choice in choices.values():
                    self._engine.add(choice.request)
                for event, engine_id in self._events(choices):
                    events[engine_id].append(event)
                    if event.finish_reason is not None:
                        progress.advance(event.num_output_tokens)
            except BaseException:
                self._engine.abort(list(choices))
                while self._engine.has_work:
                    self._engine.step()
                raise
        return [
            Answer(
                prompt=text,
                prompt_token_ids=prompt,
                outputs=[_fold(events[request.request_id]) for request in group],
                num_cached_tokens=events[group[0].request_id][-1].num_cached_tokens,
                prompt_logprobs=_prompt_logprobs(group[0], events[group[0].request_id]),
            )
            for text, prompt, group in zip(texts, prompts, requests, strict=True)
        ]

    def _events(self, choices: dict[str, Choice]) -> Iterator[tuple[RequestOutput, str]]:
        """Step the engine until every choice has ended, yielding (event, engine id)."""
        unfinished = set(choices)
        while unfinished:
            outputs = self._engine.step()
            if outputs is None:
                continue
            for delta in outputs.deltas:
                if delta.request_id not in unfinished:
                    continue
                choice = choices[delta.request_id]
                event = choice.feed(delta)
                if event.finish_reason is not None:
                    unfinished.discard(delta.request_id)
                if choice.ended_by_stop_string:
                    self._engine.abort([delta.request_id])
                yield event, delta.request_id

    def _params_for(self, prompts: list[list[int]], params: SamplingParams | Sequence[SamplingParams] | None) -> list[SamplingParams]:
        if params is None:
            params = self.get_default_sampling_params()
        if isinstance(params, SamplingParams):
            return [params] * len(prompts)
        if not isinstance(params, Sequence) or not all(isinstance(one, SamplingParams) for one in params):
            raise InvalidRequest(
                f"sampling_params must be SamplingParams or a list of them, not {type(params).__name__}",
                code="invalid_type",
                param="sampling_params",
            )
        if len(params) != len(prompts):
            raise InvalidRequest(
                f"{len(prompts)} prompts but {len(params)} sampling_params; give one for all or one each", param="sampling_params"
            )
        return list(params)


def _token_ids(prompt: Sequence[int]) -> list[int]:
    """Return a prompt of token ids, NumPy's among them, as plain integers. Raises InvalidRequest."""
    try:
        if isinstance(prompt, bytes):
            raise TypeError
        return [index(token_id) for token_id in prompt]
    except TypeError:
        raise InvalidRequest("a prompt must be a string or a list of token ids", code="invalid_type", param="prompt") from None


def _prompts(prompts: Prompt | Iterable[Prompt]) -> list[Prompt]:
    """Return one prompt or several as a list of text and of plain token ids. Raises InvalidRequest."""
    return [prompt if isinstance(prompt, str) else _token_ids(prompt) for prompt in _listed(prompts)]


def _fold(events: list[RequestOutput]) -> CompletionOutput:
    last = events[-1]
    if last.finish_reason is None or last.finish_reason == "error":
        raise RequestFailed(last.error or "the request ended without an answer")
    logprobs = [position for event in events if event.logprobs is not None for position in event.logprobs]
    asked = any(event.logprobs is not None for event in events)
    return CompletionOutput(
        index=last.index,
        text="".join(event.text for event in events),
        token_ids=[token_id for event in events for token_id in event.token_ids],
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        logprobs=logprobs if asked else None,
        cumulative_logprob=sum(position.sampled.logprob for position in logprobs) if asked else None,
    )


def _prompt_logprobs(request: GenerateRequest, events: list[RequestOutput]) -> list[PositionLogprobs | None] | None:
    if request.params.prompt_logprobs is None:
        return None
    return [None, *(position for event in events for position in event.prompt_logprobs or ())]


def _listed(prompts: Prompt | Iterable[Prompt]) -> list[Prompt]:
    """Return one prompt or several as a list; what is a list of no lists and no strings is one prompt. Raises InvalidRequest."""
    if isinstance(prompts, str | bytes):
        return [prompts]
    if not isinstance(prompts, Iterable):
        raise InvalidRequest(f"prompts must be text, token ids or a list of those, not {type(prompts).__name__}", param="prompt")
    listed: list[Any] = list(prompts)
    return [listed] if listed and not isinstance(listed[0], Iterable) else listed


def _engine_config(settings: dict[str, Any]) -> EngineConfig:
    rooms = {"model": ModelConfig, "cache": CacheConfig, "scheduler": SchedulerConfig, "runtime": RuntimeConfig}
    home = {field.name: room for room, schema in rooms.items() for field in fields(schema)}
    chosen: dict[str, dict[str, Any]] = {room: {} for room in rooms}
    for name, value in settings.items():
        if name not in home:
            raise ConfigError(f"LLM has no setting {name!r}; it has {', '.join(sorted(home))}")
        chosen[home[name]][name] = str(value) if isinstance(value, Path) else value
    try:
        return msgspec.convert(chosen, EngineConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a setting of LLM has a wrong type: {error}") from None


class _Progress:
    """A bar on a terminal; nothing elsewhere."""

    def __init__(self, total: int, *, enabled: bool) -> None:
        self._total = total
        self._tokens = 0
        self._start_s = time.monotonic()
        self._bar = None
        if enabled and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("answers"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def __enter__(self) -> _Progress:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total, rate="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, num_tokens: int) -> None:
        self._tokens += num_tokens
        if self._bar is not None:
            rate = self._tokens / max(1e-9, time.monotonic() - self._start_s)
            self._bar.update(self._task, advance=1, rate=f"{rate:,.0f} tok/s")
