"""`AsyncEngine`: requests in, text events out, for asyncio programs and for the server.

An engine process that dies is replaced, and its requests go on where they stopped (keeper.py, in_flight.py).

One request in, exactly one final event for each of its choices out. Closing a Generation aborts its request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from octavo.client.choice import Choice
from octavo.client.engine_process import Connection, EngineProcess
from octavo.client.events import Events, Generation
from octavo.client.front import RequestMaker, TextFront, check_generates, open_text_front
from octavo.client.in_flight import InFlight
from octavo.client.keeper import EngineKeeper
from octavo.client.load import Load
from octavo.client.pooling import PoolChoice, PooledEvent, PoolFront, PoolPrompt, values_of
from octavo.config.schema import EngineConfig
from octavo.errors import EngineDead, InvalidRequest
from octavo.loaders.store import resolve_model
from octavo.messages.stats import StepStats
from octavo.messages.wire import (
    AbortRequest,
    ControlReply,
    EngineReady,
    FromEngine,
    PauseMode,
    PoolRequest,
    PoolTask,
    StepOutputs,
)
from octavo.metrics.figures import Figures
from octavo.params import SamplingParams
from octavo.specs.model import EncoderSpec, ModelSpec
from octavo.specs.text import GenerationDefaults
from octavo.text.chat import ChatTemplate
from octavo.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from octavo.client.vectors import FloatArray

PAUSE_CHECK_S = 0.02  # between looks at whether all have ended


class AsyncEngine:
    """A running engine. Made by `start`, ended by `stop`."""

    def __init__(
        self,
        config: EngineConfig,
        front: TextFront,
        process: Connection,
        ready: EngineReady,
        on_log: Callable[[str], None],
        replace: Callable[[], Awaitable[Connection]],
        load: Load,
        name: str,
    ) -> None:
        self.ready = ready
        self._config = config
        self._front = front
        self._load = load
        self._name = name
        self._maker = RequestMaker(front, ready.max_model_len, ready.vocab_size, config.model, name)
        self._num_pooled = 0
        self._stats_listeners: list[Callable[[StepStats], None]] = []
        self._in_flight = InFlight(load)
        self._keeper = EngineKeeper(process, replace, self._in_flight, load.usual_step_s, self._on_message, on_log)

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        *,
        on_log: Callable[[str], None] | None = None,
        process: Connection | None = None,
        replace: Callable[[], Awaitable[Connection]] | None = None,
        load: Load | None = None,
        name: str = "",
    ) -> AsyncEngine:
        """Return an engine that can serve; it loads while this side opens the tokenizer. Raises StartupError.

        `process`: one spawned for this config already, by a caller who imports this module meanwhile. `replace`: returns the engine
        that takes the place of a dead one, by default a new process. `load` and `name` are for several processes on one engine:
        where they count together, and what the ids of this one's requests begin with."""
        process = process or await EngineProcess.spawn(config)
        try:
            front = await asyncio.to_thread(open_text_front, config.model, resolve_model(config.model.model))
            ready = await process.wait_ready()
        except BaseException:
            await process.close()
            raise
        log = on_log or (lambda line: None)
        for line in ready.startup_lines:
            log(line)
        return cls(config, front, process, ready, log, replace or partial(EngineProcess.spawn, config), load or Load(Figures()), name)

    @property
    def front(self) -> TextFront:
        return self._front

    @property
    def path(self) -> Path:
        """Where the model's files are."""
        return resolve_model(self._config.model.model)

    @property
    def spec(self) -> ModelSpec | EncoderSpec:
        return self._front.spec

    @property
    def generates(self) -> bool:
        """Whether the model generates text; otherwise it gives vectors or scores."""
        return isinstance(self._front.spec, ModelSpec)

    @property
    def tokenizer(self) -> Tokenizer:
        return self._front.tokenizer

    @property
    def chat(self) -> ChatTemplate | None:
        """The chat template. Raises InvalidRequest for a model that generates no text."""
        check_generates(self._front)
        return self._front.chat

    @property
    def generation(self) -> GenerationDefaults:
        return self._front.generation

    @property
    def model_names(self) -> tuple[str, ...]:
        return self._front.model_names

    @property
    def pool_front(self) -> PoolFront:
        """What reads texts for `pool`. Raises InvalidRequest when the model generates."""
        return PoolFront(self._front, self.ready.max_model_len)

    @property
    def is_alive(self) -> bool:
        """Whether the engine's process runs and has been heard of lately."""
        return self._keeper.is_alive

    @property
    def last_error(self) -> str | None:
        """Why the engine was given up; None while it runs or is being replaced."""
        return self._keeper.last_error

    @property
    def num_unfinished(self) -> int:
        """Choices that have not had their final event, over all processes that share this engine."""
        return int(self._load.unfinished.value)

    @property
    def num_own(self) -> int:
        """Of those, this process' own."""
        return len(self._in_flight)

    @property
    def num_queued_tokens(self) -> int:
        """Prompt tokens of choices that have had no token yet, over all processes that share this engine."""
        return int(self._load.queued_tokens.value)

    def add_stats_listener(self, listener: Callable[[StepStats], None]) -> None:
        self._stats_listeners.append(listener)

    def generate(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        request_id: str,
        cache_salt: str = "",
        tenant: str = "",
        priority: int = 0,
    ) -> Generation:
        """Return the events of all params.n choices. Raises RequestError and EngineDead here, not later."""
        check_generates(self._front)
        self._keeper.check_going()
        requests = list(
            self._maker.make(prompt_token_ids, params, arrival_s=time.monotonic(), cache_salt=cache_salt, tenant=tenant, priority=priority)
        )
        stream = Generation(len(requests), lambda: self._abort([request.request_id for request in requests]))
        for index, request in enumerate(requests):
            self._in_flight.take_on(Choice(request_id, index, request, self.tokenizer), stream, is_held=self.is_paused)
            self._keeper.send(request)
        return stream

    def abort(self, request_id: str) -> None:
        """End what is unfinished of a request: a final event with finish_reason abort for each choice. Unknown ids are ignored."""
        ids = self._in_flight.ids_of(request_id)
        self._in_flight.finish(ids, "abort")
        if ids:
            self._keeper.send(AbortRequest(ids))

    async def pool(self, prompt: PoolPrompt, task: PoolTask, *, activate: bool = True, priority: int = 0) -> FloatArray:
        """Return the vector, vectors or scores of one text, as PoolRequest says. Raises RequestError, RequestFailed and
        EngineDead. Cancelling it aborts the request."""
        self._keeper.check_going()
        self.pool_front.check_task(task)
        self._num_pooled += 1
        request = PoolRequest(
            request_id=f"{self._name}p{self._num_pooled}",
            prompt_token_ids=prompt.token_ids,
            task=task,
            second_start=prompt.second_start,
            arrival_s=time.monotonic(),
            activate=activate,
            priority=priority,
        )
        stream = Events[PooledEvent](1, lambda: self._abort([request.request_id]))
        self._in_flight.take_on(PoolChoice(request), stream)
        self._keeper.send(request)
        try:
            event = await anext(stream)
        finally:
            await stream.aclose()
        if event.finish_reason == "abort":
            raise EngineDead("the engine was stopped before it answered")
        return values_of(event)

    async def control(
        self,
        kind: Literal["ping", "reset_prefix_cache", "pause", "resume"],
        *,
        reset_running_requests: bool = False,
        mode: PauseMode = "abort",
    ) -> ControlReply:
        """Return the engine's answer to an administrative verb. Raises EngineDead."""
        return await self._keeper.control(kind, reset_running_requests=reset_running_requests, mode=mode)

    @property
    def is_paused(self) -> bool:
        return self._keeper.pause is not None

    async def pause(self, mode: PauseMode = "abort", *, clear_cache: bool = True) -> None:
        """Begin with no further request until `resume`; those that come are held. Those that the engine has are ended (abort),
        awaited (wait) or stand still (keep). `clear_cache`: forget the cached prefixes too, but not of requests that stand still.

        Raises InvalidRequest when this engine does not pause, and EngineDead. A restart of the engine's process changes nothing of it."""
        begun = self._in_flight.begun_ids
        was, self._keeper.pause = self._keeper.pause, mode
        reply = await self.control("pause", mode=mode)
        if not reply.ok:
            self._keeper.pause = was
            raise InvalidRequest(reply.message, code="unsupported_task")
        while mode == "wait" and self._keeper.pause == mode and any(engine_id in self._in_flight for engine_id in begun):
            await asyncio.sleep(PAUSE_CHECK_S)
        if clear_cache and mode != "keep":
            await self.control("reset_prefix_cache")

    async def resume(self) -> None:
        """Go on where `pause` stopped. Raises EngineDead."""
        self._keeper.pause = None
        self._in_flight.release_held()
        await self.control("resume")

    async def stop(self) -> None:
        """End the engine; unfinished requests get a final event with finish_reason abort. Idempotent."""
        await self._keeper.stop()
        self._in_flight.finish_all("abort")

    def _abort(self, engine_ids: list[str]) -> None:
        if unfinished := self._in_flight.drop(engine_ids):
            self._keeper.send(AbortRequest(unfinished))

    def _on_message(self, message: FromEngine) -> None:
        if not isinstance(message, StepOutputs):
            return
        stopped = [delta.request_id for delta in message.deltas if self._in_flight.deliver(delta)]
        if stopped:
            self._keeper.send(AbortRequest(stopped))
        if message.stats is not None:
            usual = self._load.usual_step_s
            usual.inc(0.1 * (message.stats.step_s - usual.value))  # a moving average
            for listener in self._stats_listeners:
                listener(message.stats)
