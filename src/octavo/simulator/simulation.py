"""`Simulation`: one engine on a clock that moves only by what a step would have taken. Nothing is random here, nothing waits.

Requests come and go between steps, as in the engine's loop; with `depth` 2 a step is planned when the one before it begins, so
that what comes meanwhile waits for the step after it. The admission caps are those of the server. HTTP, tokenising and sampling
cost nothing.

It knows no hardware: step_time.py has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

from msgspec.structs import replace

from octavo.errors import CapacityError, RequestError
from octavo.kv.manager import KVManager
from octavo.messages.step import StepPlan, StepResult
from octavo.messages.wire import GenerateRequest, TokenDelta
from octavo.scheduler.admission import Limits
from octavo.scheduler.counters import Counters
from octavo.scheduler.scheduler import Scheduler
from octavo.simulator.step_time import StepTime, work_of


class Model(Protocol):
    """What a step computes: fake_model.FakeModel, or a stricter one of the tests."""

    def execute(self, plan: StepPlan) -> StepResult: ...


@dataclass(frozen=True)
class Arrival:
    """A request that is sent `at_s` seconds after the start; its caller goes away at `abort_s` if it has no answer by then."""

    at_s: float
    request: GenerateRequest
    abort_s: float | None = None


@dataclass(frozen=True)
class Caps:
    """The server's admission: most unfinished requests, and how many prompt tokens may wait before others are refused.
    `max_concurrency` is the callers': they hold a request back while so many are unfinished. None: no limit."""

    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    max_concurrency: int | None = None


@dataclass
class Story:
    """What became of one request, in seconds of the simulated clock. `ending`: a finish_reason, or "refused"."""

    request: GenerateRequest
    sent_s: float
    token_ids: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)  # of each token
    num_cached_tokens: int = 0
    ending: str | None = None
    end_s: float = 0.0


@dataclass(frozen=True)
class Sample:
    """The engine after a step. `kv_usage` 0..1."""

    time_s: float
    kv_usage: float
    num_running: int
    num_waiting: int


@dataclass(frozen=True)
class Outcome:
    """`stories` by order of sending; `samples` one for each step."""

    stories: list[Story]
    samples: list[Sample]
    counters: Counters
    seconds: float

    @property
    def num_steps(self) -> int:
        return len(self.samples)


class Simulation:
    def __init__(
        self,
        limits: Limits,
        kv: KVManager,
        model: Model,
        step_time: StepTime,
        *,
        caps: Caps | None = None,
        depth: int = 2,
        on_step: Callable[[StepPlan], object] | None = None,
    ) -> None:
        """`depth`: plans under way at once, 2 for async scheduling. `on_step` hears of each plan as it is made."""
        self.scheduler = Scheduler(limits, kv)
        self.stories: dict[str, Story] = {}
        self.now_s = 0.0
        self._model = model
        self._step_time = step_time
        self._caps = caps or Caps()
        self._depth = depth
        self._on_step = on_step
        self._in_flight: deque[StepPlan] = deque()
        self._leaving: list[tuple[float, str]] = []  # heap of (abort_s, id)
        self._num_unfinished = 0
        self._waiting_ids: set[str] = set()  # of requests that have no token yet
        self._waiting_tokens = 0  # of their prompts
        self._full_s = 0.0  # when the callers' places were last all taken
        self._samples: list[Sample] = []

    def run(self, arrivals: Iterable[Arrival]) -> Outcome:
        """Return what came of `arrivals`, when all of them have ended."""
        coming = deque(sorted(arrivals, key=lambda arrival: arrival.at_s))
        while True:
            self._let_in(coming)
            self._let_go()
            self._plan()
            if self._in_flight:
                self._finish_oldest()
            elif coming:
                self.now_s = max(self.now_s, coming[0].at_s)
            elif not self.scheduler.has_requests:
                return Outcome(list(self.stories.values()), self._samples, self.scheduler.counters, self.now_s)

    def _let_in(self, coming: deque[Arrival]) -> None:
        places = self._caps.max_concurrency
        while coming and coming[0].at_s <= self.now_s and (places is None or self._num_unfinished < places):
            self._send(coming.popleft())

    def _send(self, arrival: Arrival) -> None:
        request = arrival.request
        story = self.stories[request.request_id] = Story(request, max(arrival.at_s, self._full_s), list(request.resume_token_ids))
        try:
            if not self._has_room():
                raise CapacityError("the queue is full")
            delta = self.scheduler.add(request)
        except (RequestError, CapacityError):
            story.ending, story.end_s = "refused", story.sent_s
            return
        self._num_unfinished += 1
        self._waiting_ids.add(request.request_id)
        self._waiting_tokens += len(request.prompt_token_ids)
        if arrival.abort_s is not None:
            heappush(self._leaving, (arrival.abort_s, request.request_id))
        if delta is not None:
            self._take_in([delta])

    def _has_room(self) -> bool:
        requests, tokens = self._caps.max_num_queued_reqs, self._caps.max_num_queued_tokens
        if requests is not None and self._num_unfinished >= requests:
            return False
        return tokens is None or self._waiting_tokens < tokens

    def _let_go(self) -> None:
        while self._leaving and self._leaving[0][0] <= self.now_s:
            self._take_in(self.scheduler.abort([heappop(self._leaving)[1]]))

    def _plan(self) -> None:
        while len(self._in_flight) < self._depth and (plan := self.scheduler.plan()):
            self._in_flight.append(plan)
            if self._on_step is not None:
                self._on_step(plan)

    def _finish_oldest(self) -> None:
        plan = self._in_flight.popleft()
        step_s = self._step_time.seconds(work_of(plan))
        self.now_s += step_s
        self._take_in(self.scheduler.apply(plan, replace(self._model.execute(plan), device_s=step_s)))
        scheduler = self.scheduler
        self._samples.append(Sample(self.now_s, scheduler.kv.pool.usage, scheduler.num_running, scheduler.num_waiting))

    def _take_in(self, deltas: list[TokenDelta]) -> None:
        for delta in deltas:
            story = self.stories[delta.request_id]
            story.token_ids += delta.token_ids
            story.times_s += [self.now_s] * len(delta.token_ids)
            story.num_cached_tokens = delta.num_cached_tokens
            if (delta.token_ids or delta.finish_reason is not None) and delta.request_id in self._waiting_ids:
                self._waiting_ids.remove(delta.request_id)
                self._waiting_tokens -= len(story.request.prompt_token_ids)
            if delta.finish_reason is not None:
                story.ending, story.end_s = delta.finish_reason, self.now_s
                if self._num_unfinished == self._caps.max_concurrency:
                    self._full_s = self.now_s
                self._num_unfinished -= 1
