"""A model loaded for this command alone: AsyncEngine on an event loop of our own."""

from __future__ import annotations

import asyncio
import time

from octavo.cli.answering import Answered, Message, Options, Write
from octavo.client.async_engine import AsyncEngine
from octavo.config.schema import EngineConfig
from octavo.errors import InvalidRequest, RequestFailed
from octavo.params import SamplingParams


class LocalAnswerer:
    """Ctrl-C cancels the answer that is being written, which aborts its request; the engine stays."""

    def __init__(self, config: EngineConfig) -> None:
        self._runner = asyncio.Runner()
        self._engine = self._runner.run(AsyncEngine.start(config))
        self._num_asked = 0
        self.model_name = self._engine.model_names[0]

    def chat(self, messages: list[Message], options: Options, write: Write) -> Answered:
        template = self._engine.chat
        if template is None:
            raise InvalidRequest("this model has no chat template; use octavo complete, or give --chat-template FILE")
        token_ids = template.render(messages)
        return self._runner.run(self._answer(token_ids, options, write))

    def complete(self, prompt: str, options: Options, write: Write) -> Answered:
        return self._runner.run(self._answer(self._engine.tokenizer.encode(prompt), options, write))

    def close(self) -> None:
        self._runner.run(self._engine.stop())
        self._runner.close()

    async def _answer(self, token_ids: list[int], options: Options, write: Write) -> Answered:
        started_s = time.monotonic()
        first_s = 0.0
        pieces: list[str] = []
        self._num_asked += 1
        generation = self._engine.generate(token_ids, self._params(options), request_id=f"cli-{self._num_asked}")
        try:
            async for event in generation:
                first_s = first_s or time.monotonic() - started_s
                pieces.append(event.text)
                write(event.text)
                if event.finish_reason == "error":
                    raise RequestFailed(event.error or "the engine failed this request")
        finally:
            await generation.aclose()
        return Answered("".join(pieces), len(token_ids), event.num_output_tokens, first_s, time.monotonic() - started_s)

    def _params(self, options: Options) -> SamplingParams:
        defaults = self._engine.generation
        stated = {name: getattr(defaults, name) for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")}
        own = {name: value for name, value in stated.items() if value is not None}
        return SamplingParams(**(own | {"max_tokens": None} | options.fields()))
