"""`InlineEngine`: an engine in this very process, and the prompts that it works on, for `LLM`.

Prompts are submitted, then finished: whoever waits steps the engine, and what comes for others meanwhile is kept for them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.client.answers import Answer, AnswerBuilder
from octavo.client.choice import Choice
from octavo.client.front import RequestMaker, check_generates, open_text_front
from octavo.client.progress import Progress
from octavo.client.prompts import ReadPrompt
from octavo.config.schema import EngineConfig
from octavo.config.server_schema import ServerConfig
from octavo.engine.startup import start_engine
from octavo.loaders.store import resolve_model
from octavo.messages.wire import TokenDelta
from octavo.metrics.recorder import MetricsRecorder
from octavo.metrics.request_clock import RequestClock
from octavo.params import SamplingParams


@dataclass(frozen=True)
class Submitted:
    """One prompt that the engine works on, or has answered."""

    builder: AnswerBuilder
    choices: list[Choice]
    clocks: list[RequestClock]

    @property
    def engine_ids(self) -> list[str]:
        return [choice.request.request_id for choice in self.choices]


class InlineEngine:
    """Raises StartupError. Not thread-safe."""

    def __init__(self, config: EngineConfig) -> None:
        self.path = resolve_model(config.model.model)
        self.front = open_text_front(config.model, self.path)
        self.core, self.ready = start_engine(config)
        self.metrics = MetricsRecorder(ServerConfig().metrics_prefix, self.front.model_names[0], self.ready, config.cache)
        self._maker = RequestMaker(self.front, self.ready.max_model_len, self.ready.vocab_size, config.model)
        self._in_flight: dict[str, tuple[Submitted, Choice, RequestClock]] = {}
        self._num_submitted = 0

    def submit(self, prompts: Sequence[ReadPrompt], params: Sequence[SamplingParams], priorities: Sequence[int]) -> list[Submitted]:
        """Give the engine all of these prompts. Raises RequestError for a bad one, and none has been given then."""
        check_generates(self.front)
        arrival_s = time.monotonic()
        requests = [
            list(self._maker.make(prompt.token_ids, one, arrival_s=arrival_s, cache_salt=prompt.cache_salt, priority=priority))
            for prompt, one, priority in zip(prompts, params, priorities, strict=True)
        ]
        submitted = []
        for prompt, one, group in zip(prompts, params, requests, strict=True):
            name = str(self._num_submitted)
            self._num_submitted += 1
            builder = AnswerBuilder(name, prompt.text, prompt.token_ids, one.n, scores_prompt=one.prompt_logprobs is not None)
            choices = [Choice(name, index, request, self.front.tokenizer) for index, request in enumerate(group)]
            run = Submitted(builder, choices, self.metrics.start_request(one.n, one.max_tokens or 0, arrival_s))
            submitted.append(run)
            for choice, clock in zip(run.choices, run.clocks, strict=True):
                self._in_flight[choice.request.request_id] = (run, choice, clock)
                self.core.add(choice.request)
        return submitted

    def finish(self, runs: Sequence[Submitted], *, use_tqdm: bool) -> list[Answer]:
        """Return the answers to these, in their order. Raises RequestFailed when the engine fails one; then, as on any
        interruption, all of them are aborted."""
        waiting = {engine_id for run in runs for engine_id in run.engine_ids if engine_id in self._in_flight}
        try:
            with Progress(len(waiting), enabled=use_tqdm) as progress:
                while waiting:
                    for engine_id, num_tokens in self._step():
                        if engine_id in waiting:
                            waiting.discard(engine_id)
                            progress.advance(num_tokens)
            return [run.builder.answer() for run in runs]
        except BaseException:
            self.abort(runs)
            raise

    def abort(self, runs: Sequence[Submitted]) -> None:
        """End these without an answer."""
        engine_ids = [engine_id for run in runs for engine_id in run.engine_ids if engine_id in self._in_flight]
        for engine_id in engine_ids:
            self._in_flight.pop(engine_id)[2].end("abort")
        self.core.abort(engine_ids)
        while self.core.has_work and not self._in_flight:
            self.core.step()

    def _step(self) -> list[tuple[str, int]]:
        """Step the engine; return the choices that have ended, with their numbers of tokens."""
        outputs = self.core.step()
        if outputs is None:
            return []
        if outputs.stats is not None:
            self.metrics.record_step(outputs.stats)
        return [ended for delta in outputs.deltas if (ended := self._on_delta(delta)) is not None]

    def _on_delta(self, delta: TokenDelta) -> tuple[str, int] | None:
        """Hand on the delta's event; return what it ends."""
        if delta.request_id not in self._in_flight:  # aborted, or ended by a stop string
            return None
        run, choice, clock = self._in_flight[delta.request_id]
        event = choice.feed(delta)
        if event.begun_s is not None:
            clock.begin(event.begun_s)
        clock.tokens(len(event.token_ids), event.num_prompt_tokens, event.num_cached_tokens, event.num_loaded_tokens)
        if event.finish_reason is not None:
            del self._in_flight[delta.request_id]
            clock.end(event.finish_reason, event.num_preemptions)
        if choice.ended_by_stop_string:
            self.core.abort([delta.request_id])
        run.builder.add(event)
        return (delta.request_id, event.num_output_tokens) if event.finish_reason is not None else None
