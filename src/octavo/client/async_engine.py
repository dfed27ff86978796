"""`AsyncEngine`: requests in, text events out, for asyncio programs and for the server.

It keeps every unfinished request until its final event, so that an engine process which dies is restarted and its
requests go on where they stopped: prompt and tokens sent so far are given to the new engine, whose tokens are the same
(decisions 4 and 5 of docs/map.md). A request that was in flight during two crashes is failed, not tried a third time.

One request in, exactly one final event for each of its choices out. Closing a Generation aborts its request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from octavo.client.choice import Choice
from octavo.client.deaths import Deaths
from octavo.client.engine_process import Connection, EngineProcess
from octavo.client.engine_wire import HELLO
from octavo.client.events import Events, Generation
from octavo.client.front import RequestMaker, TextFront, check_generates, open_text_front
from octavo.client.load import Load
from octavo.client.pooling import PoolChoice, PooledEvent, PoolFront, PoolPrompt, values_of
from octavo.config.schema import EngineConfig
from octavo.errors import EngineDead, InvalidRequest, StartupError
from octavo.loaders.store import resolve_model
from octavo.messages.stats import StepStats
from octavo.messages.wire import (
    AbortRequest,
    ControlReply,
    ControlRequest,
    EngineReady,
    FromEngine,
    PauseMode,
    PoolRequest,
    PoolTask,
    StepOutputs,
    TokenDelta,
)
from octavo.metrics.figures import Figures
from octavo.params import SamplingParams
from octavo.specs.model import EncoderSpec, ModelSpec
from octavo.specs.text import GenerationDefaults
from octavo.text.chat import ChatTemplate
from octavo.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from octavo.client.vectors import FloatArray

MAX_CRASHES_OF_A_REQUEST = 2
HEARTBEAT_S = 1.0  # between pings, which the engine answers between steps
SILENCE_S = 10.0  # and 20 steps more: an engine that says nothing for so long is not healthy
HANG_S = 120.0  # and 20 steps more: it is killed, and its requests go on in a new one
PAUSE_CHECK_S = 0.02  # between looks at whether all have ended


class _InFlight:
    """One choice that the engine works on, and where its events go."""

    def __init__(self, choice: Choice | PoolChoice, stream: Events[Any], *, is_held: bool = False) -> None:
        self.choice = choice
        self.stream = stream
        self.crashes = 0
        self.num_queued_tokens = len(choice.request.prompt_token_ids)  # until its first token
        self.is_held = is_held  # it came while the engine was paused, which has not begun with it


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
        self.last_error: str | None = None
        self._config = config
        self._front = front
        self._replace = replace
        self._load = load
        self._name = name
        self._maker = RequestMaker(front, ready.max_model_len, ready.vocab_size, config.model, name)
        self._on_log = on_log
        self._in_flight: dict[str, _InFlight] = {}
        self._replies: dict[int, asyncio.Future[ControlReply]] = {}
        self._next_control_id = 1
        self._num_pooled = 0
        self._stats_listeners: list[Callable[[StepStats], None]] = []
        self._stopping = False
        self._pause: PauseMode | None = None
        self._heard_s = time.monotonic()
        self._process: Connection | None = process  # None while a dead one is being replaced
        process.listen(self._on_message)
        self._watches = (asyncio.create_task(self._keep_alive()), asyncio.create_task(self._keep_moving()))

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
        return self._process is not None and self._silence_s() < SILENCE_S

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
        if self.last_error is not None or self._stopping:
            raise EngineDead(f"the engine is not running: {self.last_error or 'it is being stopped'}")
        requests = list(
            self._maker.make(prompt_token_ids, params, arrival_s=time.monotonic(), cache_salt=cache_salt, tenant=tenant, priority=priority)
        )
        stream = Generation(len(requests), lambda: self._abort([request.request_id for request in requests]))
        for index, request in enumerate(requests):
            self._take_on(_InFlight(Choice(request_id, index, request, self.tokenizer), stream, is_held=self.is_paused))
            if self._process is not None:  # else the restart under way sends it
                self._process.send(request)
        return stream

    def abort(self, request_id: str) -> None:
        """End what is unfinished of a request: a final event with finish_reason abort for each choice. Unknown ids are ignored."""
        ids = [
            engine_id
            for engine_id, flight in self._in_flight.items()
            if isinstance(flight.choice, Choice) and flight.choice.request_id == request_id
        ]
        for engine_id in ids:
            self._finish(engine_id, "abort", None)
        if ids and self._process is not None:
            self._process.send(AbortRequest(ids))

    async def pool(self, prompt: PoolPrompt, task: PoolTask, *, activate: bool = True, priority: int = 0) -> FloatArray:
        """Return the vector, vectors or scores of one text, as PoolRequest says. Raises RequestError, RequestFailed and
        EngineDead. Cancelling it aborts the request."""
        if self.last_error is not None or self._stopping:
            raise EngineDead(f"the engine is not running: {self.last_error or 'it is being stopped'}")
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
        self._take_on(_InFlight(PoolChoice(request), stream))
        if self._process is not None:  # else the restart under way sends it
            self._process.send(request)
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
        if self._process is None:
            raise EngineDead("the engine is not running")
        control_id = self._next_control_id
        self._next_control_id += 1
        reply: asyncio.Future[ControlReply] = asyncio.get_running_loop().create_future()
        self._replies[control_id] = reply
        self._process.send(ControlRequest(control_id, kind, reset_running_requests, mode))
        return await reply

    @property
    def is_paused(self) -> bool:
        return self._pause is not None

    async def pause(self, mode: PauseMode = "abort", *, clear_cache: bool = True) -> None:
        """Begin with no further request until `resume`; those that come are held. Those that the engine has are ended (abort),
        awaited (wait) or stand still (keep). `clear_cache`: forget the cached prefixes too, but not of requests that stand still.

        Raises InvalidRequest when this engine does not pause, and EngineDead. A restart of the engine's process changes nothing of it."""
        begun = [engine_id for engine_id, flight in self._in_flight.items() if not flight.is_held]
        was, self._pause = self._pause, mode
        reply = await self.control("pause", mode=mode)
        if not reply.ok:
            self._pause = was
            raise InvalidRequest(reply.message, code="unsupported_task")
        while mode == "wait" and self._pause == mode and any(engine_id in self._in_flight for engine_id in begun):
            await asyncio.sleep(PAUSE_CHECK_S)
        if clear_cache and mode != "keep":
            await self.control("reset_prefix_cache")

    async def resume(self) -> None:
        """Go on where `pause` stopped. Raises EngineDead."""
        self._pause = None
        for flight in self._in_flight.values():
            flight.is_held = False
        await self.control("resume")

    async def stop(self) -> None:
        """End the engine; unfinished requests get a final event with finish_reason abort. Idempotent."""
        self._stopping = True
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)  # one that was starting an engine ends it
        if self._process is not None:
            await self._process.close()
            self._process = None
        self._fail_replies()
        for request_id in list(self._in_flight):
            self._finish(request_id, "abort", None)

    def _take_on(self, flight: _InFlight) -> None:
        self._in_flight[flight.choice.request.request_id] = flight
        self._load.unfinished.inc()
        self._load.queued_tokens.inc(flight.num_queued_tokens)

    def _let_go(self, engine_id: str) -> None:
        self._leave_queue(self._in_flight.pop(engine_id))
        self._load.unfinished.inc(-1)

    def _abort(self, engine_ids: list[str]) -> None:
        unfinished = [engine_id for engine_id in engine_ids if engine_id in self._in_flight]
        for engine_id in unfinished:
            self._let_go(engine_id)
        if unfinished and self._process is not None:
            self._process.send(AbortRequest(unfinished))

    def _silence_s(self) -> float:
        """Seconds since the engine was heard of, less the time of twenty usual steps."""
        return time.monotonic() - self._heard_s - 20 * self._load.usual_step_s.value

    def _on_message(self, message: FromEngine) -> None:
        self._heard_s = time.monotonic()
        if isinstance(message, StepOutputs):
            stopped = [delta.request_id for delta in message.deltas if self._on_delta(delta)]
            if stopped and self._process is not None:
                self._process.send(AbortRequest(stopped))
            if message.stats is not None:
                usual = self._load.usual_step_s
                usual.inc(0.1 * (message.stats.step_s - usual.value))  # a moving average
                for listener in self._stats_listeners:
                    listener(message.stats)
        elif isinstance(message, ControlReply):
            reply = self._replies.pop(message.control_id, None)
            if reply is not None and not reply.done():
                reply.set_result(message)

    def _on_delta(self, delta: TokenDelta) -> bool:
        """Hand the delta's event to its reader; return whether a stop string has ended a request the engine still runs."""
        flight = self._in_flight.get(delta.request_id)
        if flight is None:  # aborted, or ended by a stop string: the engine had not heard yet
            return False
        event = flight.choice.feed(delta)
        if event.finish_reason is not None:
            self._let_go(delta.request_id)
        elif flight.num_queued_tokens and delta.token_ids:
            self._leave_queue(flight)
        flight.stream.put(event)
        return flight.choice.ended_by_stop_string

    def _leave_queue(self, flight: _InFlight) -> None:
        self._load.queued_tokens.inc(-flight.num_queued_tokens)
        flight.num_queued_tokens = 0

    def _finish(self, engine_id: str, reason: Literal["abort", "error"], error: str | None) -> None:
        self._on_delta(TokenDelta(engine_id, [], finish_reason=reason, error=error))

    async def _keep_alive(self) -> None:
        """Restart a dead engine and give it back its requests; after too many deaths give up and fail them."""
        deaths = Deaths()
        while (process := self._process) is not None:
            code = await process.wait_dead()
            self._process = None
            await process.close()
            self._fail_replies()
            may_try_again = deaths.count()
            self._on_log(f"engine process ended (exit code {code}) with {len(self._in_flight)} requests in flight")
            for engine_id, flight in list(self._in_flight.items()):
                flight.crashes += 1
                if flight.crashes >= MAX_CRASHES_OF_A_REQUEST:
                    self._finish(engine_id, "error", f"the engine crashed {flight.crashes} times while this request was running")
            if not may_try_again:
                self._give_up(deaths.reason)
                return
            await asyncio.sleep(deaths.delay_s)
            try:
                await self._restart()
            except Exception as error:  # whatever it is, those who wait must hear of it
                self._give_up(error.message if isinstance(error, StartupError) else f"it cannot be started again ({type(error).__name__})")

    async def _keep_moving(self) -> None:
        """Ping the engine; kill one that hangs (`_keep_alive` then replaces it)."""
        while True:
            asleep_s = time.monotonic()
            await asyncio.sleep(HEARTBEAT_S)
            if time.monotonic() - asleep_s > 2 * HEARTBEAT_S:  # this side was held up: what the engine said is still to be read
                self._heard_s = time.monotonic()
            if self._process is None:
                continue
            if self._silence_s() > HANG_S:
                self._on_log(f"engine process has said nothing for {time.monotonic() - self._heard_s:.0f} s; killing it")
                self._process.kill()
            else:
                self._process.send(HELLO)

    async def _restart(self) -> None:
        process = await self._replace()
        try:
            await process.wait_ready()
        except BaseException:
            await process.close()
            raise
        self._process = process
        self._heard_s = time.monotonic()
        process.listen(self._on_message)
        first = [flight for flight in self._in_flight.values() if not flight.is_held and self._pause != "keep"]
        for flight in first:
            process.send(flight.choice.resumed())
        if self._pause is not None:
            process.send(ControlRequest(0, "pause", mode=self._pause))
        for flight in self._in_flight.values():
            if flight not in first:
                process.send(flight.choice.resumed())
        self._on_log(f"engine process restarted; {len(self._in_flight)} requests go on")

    def _give_up(self, reason: str) -> None:
        self.last_error = reason
        self._on_log(f"engine given up: {reason}")
        for engine_id in list(self._in_flight):
            self._finish(engine_id, "error", "the engine is gone")

    def _fail_replies(self) -> None:
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(EngineDead("the engine died before it answered"))
        self._replies.clear()
