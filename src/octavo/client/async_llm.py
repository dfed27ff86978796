"""`AsyncLLM`: what `LLM` is, for asyncio programs: answers come while they grow, many at once, from an engine process of its own.

    async with AsyncLLM("smollm2-135m-instruct") as llm:
        async for answer in llm.generate("The capital of France is", SamplingParams(max_tokens=16)):
            print(answer.outputs[0].text)

One that crashes is replaced and its requests go on (client/keeper.py). Whoever leaves an iterator early aborts its request
by closing it (`contextlib.aclosing`), or by name with `abort`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal

from octavo.client.answers import Answer, AnswerBuilder
from octavo.client.async_engine import AsyncEngine
from octavo.client.conversations import Message, render_conversations
from octavo.client.front import default_sampling_params
from octavo.client.pooling_calls import PooledAnswer, PoolingOutput
from octavo.client.prompts import Prompt, ReadPrompt, read_prompt, text_or_ids
from octavo.client.settings import engine_config
from octavo.config.schema import DEFAULT_MODEL
from octavo.errors import EngineDead, InvalidRequest
from octavo.messages.wire import PauseMode, PoolTask
from octavo.params import SamplingParams
from octavo.text.tokenizer import Tokenizer

OutputKind = Literal["cumulative", "delta", "final_only"]


class AsyncLLM:
    """A model in an engine process. Keyword arguments are LLM's. Use it as a context, or call `start` and `stop`.

    Raises ConfigError for a setting that does not exist."""

    def __init__(self, model: str | Path = DEFAULT_MODEL, **settings: Any) -> None:
        self._config = engine_config({"model": model, **settings})
        self._started: AsyncEngine | None = None
        self._unfinished: set[str] = set()
        self._num_named = 0

    async def start(self) -> AsyncLLM:
        """Load the model and return this. Raises StartupError."""
        if self._started is None:
            self._started = await AsyncEngine.start(self._config)
        return self

    async def stop(self) -> None:
        """End the engine; unfinished answers end with finish_reason abort. Idempotent."""
        if self._started is not None:
            await self._started.stop()

    async def __aenter__(self) -> AsyncLLM:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def get_tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """Return the sampling defaults of the model's own files, which are used where none are given."""
        return default_sampling_params(self._engine.generation)

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
        output_kind: OutputKind = "cumulative",
    ) -> AsyncGenerator[Answer, None]:
        """Yield the answer as it grows: all so far (cumulative), what is new (delta), or only the whole one (final_only).

        The last one, and only it, is `finished`. Raises RequestError before the first, RequestFailed and EngineDead."""
        read = await asyncio.to_thread(read_prompt, prompt, self._engine.tokenizer)
        async with aclosing(self._answers(read, sampling_params, request_id, priority, output_kind)) as answers:
            async for answer in answers:
                yield answer

    async def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
        output_kind: OutputKind = "cumulative",
        **template: Any,
    ) -> AsyncGenerator[Answer, None]:
        """Yield the answer to one conversation, as generate() does; `template` are the arguments of LLM.chat that make the prompt."""
        engine = self._engine
        (read,) = await asyncio.to_thread(lambda: render_conversations(engine.front, engine.path, messages, **template))
        async with aclosing(self._answers(read, sampling_params, request_id, priority, output_kind)) as answers:
            async for answer in answers:
                yield answer

    async def encode(
        self,
        prompt: Prompt,
        pooling_task: PoolTask = "embed",
        request_id: str | None = None,
        *,
        priority: int = 0,
        truncate_prompt_tokens: int | None = None,
    ) -> AsyncGenerator[PooledAnswer, None]:
        """Yield the one array that LLM.encode gives. Raises RequestError, RequestFailed and EngineDead."""
        engine = self._engine
        read = await asyncio.to_thread(engine.pool_front.read, text_or_ids(prompt), truncate=truncate_prompt_tokens, param="prompt")
        name = self._name(request_id)
        yield PooledAnswer(name, read.token_ids, PoolingOutput(await engine.pool(read, pooling_task, priority=priority)))

    async def abort(self, request_id: str) -> None:
        """End a request: its iterator yields what has come, with finish_reason abort, and ends. One that has ended is ignored."""
        self._engine.abort(request_id)

    async def check_health(self) -> None:
        """Return when the engine would take a request now. Raises EngineDead."""
        if not self._engine.is_alive or self._engine.last_error is not None:
            raise EngineDead("the engine is not running, or has not been heard of lately")

    async def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Do as LLM.reset_prefix_cache. Raises EngineDead."""
        return (await self._engine.control("reset_prefix_cache", reset_running_requests=reset_running_requests)).ok

    async def pause_generation(self, mode: PauseMode = "abort", clear_cache: bool = True) -> None:
        """Begin with no further request until `resume_generation`, as AsyncEngine.pause says. Raises InvalidRequest and EngineDead."""
        await self._engine.pause(mode, clear_cache=clear_cache)

    async def resume_generation(self) -> None:
        """Go on where `pause_generation` stopped. Raises EngineDead."""
        await self._engine.resume()

    async def is_paused(self) -> bool:
        return self._engine.is_paused

    @property
    def _engine(self) -> AsyncEngine:
        if self._started is None:
            raise EngineDead("the engine has not been started; use `async with`, or await start()")
        return self._started

    async def _answers(
        self, prompt: ReadPrompt, params: SamplingParams | None, request_id: str | None, priority: int, output_kind: OutputKind
    ) -> AsyncGenerator[Answer, None]:
        params = params or self.get_default_sampling_params()
        name = self._name(request_id)
        if name in self._unfinished:
            raise InvalidRequest("a request of this id is unfinished; give each one its own", param="request_id")
        builder = AnswerBuilder(name, prompt.text, prompt.token_ids, params.n, scores_prompt=params.prompt_logprobs is not None)
        events = self._engine.generate(prompt.token_ids, params, request_id=name, cache_salt=prompt.cache_salt, priority=priority)
        self._unfinished.add(name)
        try:
            async with aclosing(events):
                async for event in events:
                    builder.add(event)
                    if output_kind == "delta":
                        yield builder.take()
                    elif output_kind == "cumulative" or builder.is_finished:
                        yield builder.answer()
        finally:
            self._unfinished.discard(name)

    def _name(self, request_id: str | None) -> str:
        self._num_named += 1
        return request_id if request_id is not None else f"octavo-{self._num_named}"
