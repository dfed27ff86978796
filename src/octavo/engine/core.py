"""`EngineCore`: one scheduler, one executor, steps one after another. It knows no sockets, processes or text.

A step that raises is taken apart: each of its rows runs once more alone, and so do those of the step planned behind it;
one that raises again ends with finish_reason "error", the others go on as if nothing had been. Every request added ends
in exactly one final delta. A request whose answer must match a grammar is not scheduled before that is compiled; the others go on.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import structs

from octavo.engine.executor import Executor
from octavo.errors import CapacityError, InvalidRequest, RequestError
from octavo.messages.stats import StepStats
from octavo.messages.step import SampledRow, ScoredRow, StepPlan, StepResult
from octavo.messages.wire import (
    ControlReply,
    ControlRequest,
    EngineRequest,
    GenerateRequest,
    PauseMode,
    PoolRequest,
    StepOutputs,
    TokenDelta,
)
from octavo.scheduler.counters import Counters
from octavo.scheduler.scheduler import Scheduler, plan_around
from octavo.worker.estimate import StepEstimator

if TYPE_CHECKING:
    from octavo.engine.grammars import GrammarCompiler
    from octavo.grammar.matcher import CompiledGrammar

log = logging.getLogger(__name__)

GRAMMAR_WAIT_S = 0.005  # between looks at what else has come, while all that there is to do is to wait for a grammar


class EngineCore:
    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        estimator: StepEstimator | None = None,
        make_compiler: Callable[[], GrammarCompiler] | None = None,
    ) -> None:
        """`estimator`: counts what each step has to do, for the metrics. `make_compiler`: makes what compiles grammars, for the first
        request that needs one; None: this engine takes none."""
        self._scheduler = scheduler
        self._executor = executor
        self._estimator = estimator
        self._make_compiler = make_compiler
        self._grammars: GrammarCompiler | None = None
        self._in_flight: deque[StepPlan] = deque()  # started and not applied, the oldest first
        self._num_dropped = 0  # of those, how many the executor will not run: they stand behind one that failed
        self._deltas: list[TokenDelta] = []  # to go out with the next step
        self._queued: deque[tuple[float, str]] = deque()  # (when, request), the oldest first, where waiting has an end
        self._pause: PauseMode | None = None
        self._held: dict[str, EngineRequest] = {}  # that came while paused, in order
        self._begun_s: dict[str, float] = {}  # requests whose first step is planned and not told yet -> when

    @property
    def has_work(self) -> bool:
        """A step would compute or report something."""
        if self._deltas or self._in_flight:
            return True
        return self._pause != "keep" and (self._scheduler.has_requests or self.num_awaiting_grammar > 0)

    @property
    def num_awaiting_grammar(self) -> int:
        return 0 if self._grammars is None else self._grammars.num_waiting

    def add(self, request: EngineRequest) -> None:
        """Queue `request`. One that can never run is answered by a final delta with finish_reason "error".

        Raises EngineError, changing nothing, when its id belongs to an unfinished request. While paused it is only held."""
        if self._pause is not None:
            self._held[request.request_id] = request
            return
        if isinstance(request, GenerateRequest) and request.params.structured_outputs is not None and self._make_compiler is not None:
            if self._grammars is None:
                self._grammars = self._make_compiler()
            self._grammars.begin(request)
        else:
            self._schedule(request)

    def _schedule(self, request: EngineRequest, grammar: CompiledGrammar | None = None) -> None:
        delta: TokenDelta | None
        try:
            if isinstance(request, PoolRequest):
                raise InvalidRequest("this model generates text; it gives no vectors or scores")
            if grammar is None and request.params.structured_outputs is not None:
                raise InvalidRequest("this engine compiles no grammars")
            delta = self._scheduler.add(request, grammar)
            if self._scheduler.limits.max_queue_s is not None:
                self._queued.append((time.monotonic(), request.request_id))
        except (RequestError, CapacityError) as refusal:
            delta = TokenDelta(request.request_id, [], "error", error=refusal.message)
        if delta is not None:
            self._deltas.append(delta)

    def abort(self, request_ids: Iterable[str]) -> None:
        """End these requests with finish_reason "abort"; ids that have ended are ignored. Their blocks are free at once."""
        for request_id in list(request_ids):
            if self._held.pop(request_id, None) is not None or (self._grammars is not None and self._grammars.drop(request_id)):
                self._deltas.append(TokenDelta(request_id, [], "abort"))
            else:
                self._deltas += self._scheduler.abort([request_id])

    def control(self, request: ControlRequest) -> ControlReply:
        """Carry out an administrative verb. `shutdown` concerns the loop: here it is only acknowledged."""
        if request.kind == "reset_prefix_cache" and not self.reset_prefix_cache(request.reset_running_requests):
            return ControlReply(request.control_id, False, "requests are running and hold KV blocks; try again when the engine is idle")
        if request.kind == "pause":
            self.pause(request.mode)
        elif request.kind == "resume":
            self.resume()
        return ControlReply(request.control_id, True)

    def pause(self, mode: PauseMode) -> None:
        """Hold every request that comes from now on. Those that are here end (abort), go on to their end (wait) or stand still with
        all that they have (keep)."""
        self._pause = mode
        if mode == "abort":
            self._deltas += self._scheduler.abort_all()
            if self._grammars is not None:
                self._deltas += [TokenDelta(request_id, [], "abort") for request_id in self._grammars.drop_all()]

    def resume(self) -> None:
        """Go on with what stood still, and take in what was held, in its order."""
        self._pause = None
        held, self._held = self._held, {}
        for request in held.values():
            self.add(request)

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget every cached prefix. Returns False, with nothing changed, while requests hold blocks, unless they are to be
        reset: they are preempted then, and go on from the start with no token changed or sent twice."""
        if reset_running_requests:
            while self._in_flight:
                self._finish_oldest()
            self._scheduler.preempt_all()
        return self._scheduler.kv.reset_prefix_cache()

    def step(self) -> StepOutputs | None:
        """Finish one step; return its deltas, with those of refused and aborted requests, or None when there was nothing to do.

        Before it waits, as many plans are started as the executor takes: what comes after this step is under way by then."""
        began = time.perf_counter()
        before = structs.replace(self._scheduler.counters)
        self._refuse_stale()
        if self._grammars is not None and self._grammars.num_waiting:
            self._take_compiled(self._grammars)
        self._start_plans()
        if not self._in_flight:
            return StepOutputs(self._take_deltas()) if self._deltas else None
        planned = time.perf_counter()
        plan = self._in_flight[0]
        result, apply_s = self._finish_oldest()
        step_s = time.perf_counter() - began
        stats = self._stats(plan, before, schedule_s=planned - began + apply_s, device_s=result.device_s, step_s=step_s)
        return StepOutputs(self._take_deltas(), stats)

    def _take_compiled(self, grammars: GrammarCompiler) -> None:
        """Schedule the requests whose grammar is there, and end those that will get none. Waits a little where nothing else is to do."""
        if self._pause == "keep":
            return
        if not (self._in_flight or self._deltas or self._scheduler.has_requests):
            grammars.wait(GRAMMAR_WAIT_S)
        for done in grammars.take_compiled():
            if done.error is None:
                self._schedule(done.request, done.grammar)
            else:
                self._deltas.append(TokenDelta(done.request.request_id, [], "error", error=done.error, error_code=done.error_code))

    def _refuse_stale(self) -> None:
        """End the requests that have waited longer than max_queue_s for their first step."""
        most_s = self._scheduler.limits.max_queue_s
        while most_s is not None and self._queued and time.monotonic() - self._queued[0][0] > most_s:
            _, request_id = self._queued.popleft()
            error = f"the request has waited {most_s:g} s for its first step (max_queue_s); try again in a moment"
            if (delta := self._scheduler.refuse(request_id, error)) is not None:
                self._deltas.append(delta)

    def _start_plans(self) -> None:
        while (
            self._pause != "keep"
            and self._num_dropped == 0
            and len(self._in_flight) < self._executor.depth
            and (plan := self._scheduler.plan())
        ):
            self._executor.start(plan)
            self._in_flight.append(plan)
            for row in plan.new_rows:
                self._begun_s.setdefault(row.request_id, time.monotonic())

    def _finish_oldest(self) -> tuple[StepResult, float]:
        """Wait for the oldest plan in flight and take in its tokens; return its result, and the seconds of the taking in."""
        plan = self._in_flight.popleft()
        result = self._finish(plan)
        began = time.perf_counter()
        self._deltas += self._scheduler.apply(plan, result)
        return result, time.perf_counter() - began

    def _finish(self, plan: StepPlan) -> StepResult:
        """Return the plan's result. When it fails, and when the executor dropped it behind one that failed, each row is run alone."""
        if self._num_dropped:
            self._num_dropped -= 1
            return self._run_alone(plan)
        try:
            return self._executor.finish()
        except Exception:
            log.exception("step %d with %d rows failed; each row is tried alone", plan.step_id, len(plan.rows))
            self._num_dropped = len(self._in_flight)
            return self._run_alone(plan)

    def _run_alone(self, plan: StepPlan) -> StepResult:
        """Run each row of a plan by itself, failing those that raise; return the result that the plan would have had."""
        self._executor.start(plan_around(plan))
        self._executor.finish()
        sampled: list[SampledRow] = []
        scored: list[ScoredRow] = []
        device_s = 0.0
        for row in plan.rows:
            result = StepResult(  # of a row that is not run: it keeps the order
                step_id=plan.step_id,
                sampled=[SampledRow(request_id=row.request_id, token_ids=[])] if row.wants_sample else [],
                scored=[ScoredRow(request_id=row.request_id, logprobs=[])] if row.num_scores else [],
                device_s=0.0,
            )
            try:
                if (alone := self._scheduler.plan_alone(plan, row)) is not None:
                    self._executor.start(alone)
                    result = self._executor.finish()
            except Exception as error:
                log.exception("request %s failed alone", row.request_id)
                delta = self._scheduler.fail(row.request_id, f"the engine failed on this request ({type(error).__name__})")
                if delta is not None:
                    self._deltas.append(delta)
            sampled += result.sampled
            scored += result.scored
            device_s += result.device_s
        return StepResult(step_id=plan.step_id, sampled=sampled, scored=scored, device_s=device_s)

    def _take_deltas(self) -> list[TokenDelta]:
        deltas, self._deltas = self._deltas, []
        return [self._with_begin(delta) for delta in deltas] if self._begun_s else deltas

    def _with_begin(self, delta: TokenDelta) -> TokenDelta:
        begun_s = self._begun_s.pop(delta.request_id, None)
        return delta if begun_s is None else structs.replace(delta, begun_s=begun_s)

    def _stats(self, plan: StepPlan, before: Counters, *, schedule_s: float, device_s: float, step_s: float) -> StepStats:
        scheduler, now = self._scheduler, self._scheduler.counters
        return StepStats(
            step_id=plan.step_id,
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting + self.num_awaiting_grammar,
            num_scheduled_tokens=plan.num_tokens,
            num_prompt_tokens=now.prompt_tokens - before.prompt_tokens,
            num_output_tokens=now.output_tokens - before.output_tokens,
            num_preemptions=now.preemptions - before.preemptions,
            num_nan_rows=now.nan_rows - before.nan_rows,
            kv_usage=scheduler.kv.pool.usage,
            prefix_cache_queries=now.prefix_cache_queries - before.prefix_cache_queries,
            prefix_cache_hits=now.prefix_cache_hits - before.prefix_cache_hits,
            schedule_s=schedule_s,
            device_s=device_s,
            step_s=step_s,
            num_deferred=scheduler.num_deferred,
            external_queries=now.external_queries - before.external_queries,
            external_hits=now.external_hits - before.external_hits,
            tier=scheduler.kv.take_tier_stats(),
            residency=scheduler.kv.take_residency(),
            estimate=self._estimator.estimate(plan) if self._estimator is not None else None,
        )
