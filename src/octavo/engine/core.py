"""`EngineCore`: one scheduler, one executor, one step at a time. It knows no sockets, processes or text.

A step that raises is taken apart: each of its rows runs once more alone; the one that raises again ends with
finish_reason "error", the others go on as if nothing had been. Every request added ends in exactly one final delta.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import replace

from octavo.engine.executor import Executor
from octavo.errors import CapacityError, RequestError
from octavo.messages.stats import StepStats
from octavo.messages.step import SampledRow, ScoredRow, StepPlan, StepResult
from octavo.messages.wire import ControlReply, ControlRequest, GenerateRequest, StepOutputs, TokenDelta
from octavo.scheduler.scheduler import Counters, Scheduler

log = logging.getLogger(__name__)


class EngineCore:
    def __init__(self, scheduler: Scheduler, executor: Executor) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._deltas: list[TokenDelta] = []  # to go out with the next step

    @property
    def has_work(self) -> bool:
        """A step would compute or report something."""
        return bool(self._deltas) or self._scheduler.has_requests

    def add(self, request: GenerateRequest) -> None:
        """Queue `request`. One that can never run is answered by a final delta with finish_reason "error".

        Raises EngineError, changing nothing, when its id belongs to an unfinished request."""
        try:
            delta = self._scheduler.add(request)
        except (RequestError, CapacityError) as refusal:
            delta = TokenDelta(request.request_id, [], "error", error=refusal.message)
        if delta is not None:
            self._deltas.append(delta)

    def abort(self, request_ids: Iterable[str]) -> None:
        """End these requests with finish_reason "abort"; ids that have ended are ignored. Their blocks are free at once."""
        self._deltas += self._scheduler.abort(request_ids)

    def control(self, request: ControlRequest) -> ControlReply:
        """Carry out an administrative verb. `shutdown` concerns the loop: here it is only acknowledged."""
        if request.kind == "reset_prefix_cache" and not self.reset_prefix_cache(request.reset_running_requests):
            return ControlReply(request.control_id, False, "requests are running and hold KV blocks; try again when the engine is idle")
        return ControlReply(request.control_id, True)

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget every cached prefix. Returns False, with nothing changed, while requests hold blocks, unless they are to be
        reset: they are preempted then, and go on from the start with no token changed or sent twice."""
        if reset_running_requests:
            self._scheduler.preempt_all()
        return self._scheduler.kv.reset_prefix_cache()

    def step(self) -> StepOutputs | None:
        """Run one step; return its deltas, with those of refused and aborted requests, or None when there was nothing to do."""
        began = time.perf_counter()
        before = replace(self._scheduler.counters)
        plan = self._scheduler.plan()
        if plan is None:
            return StepOutputs(self._take_deltas()) if self._deltas else None
        planned = time.perf_counter()
        result = self._run(plan)
        ran = time.perf_counter()
        self._deltas += self._scheduler.apply(plan, result)
        ended = time.perf_counter()
        stats = self._stats(plan, before, schedule_s=planned - began + ended - ran, device_s=result.device_s, step_s=ended - began)
        return StepOutputs(self._take_deltas(), stats)

    def _run(self, plan: StepPlan) -> StepResult:
        self._executor.start(plan)
        try:
            return self._executor.finish()
        except Exception:
            log.exception("step %d with %d rows failed; each row is tried alone", plan.step_id, len(plan.rows))
        return self._run_alone(plan)

    def _run_alone(self, plan: StepPlan) -> StepResult:
        """Run each row of a failed plan by itself, failing those that raise again; return the result that the plan would have had."""
        sampled: list[SampledRow] = []
        scored: list[ScoredRow] = []
        device_s = 0.0
        for row in plan.rows:
            self._executor.start(self._scheduler.plan_alone(plan, row))
            try:
                result = self._executor.finish()
            except Exception as error:
                log.exception("request %s failed alone", row.request_id)
                delta = self._scheduler.fail(row.request_id, f"the engine failed on this request ({type(error).__name__})")
                if delta is not None:
                    self._deltas.append(delta)
                if row.wants_sample:  # keeps the order; its request has ended
                    sampled.append(SampledRow(request_id=row.request_id, token_ids=[]))
                if row.num_scores:
                    scored.append(ScoredRow(request_id=row.request_id, logprobs=[]))
            else:
                sampled += result.sampled
                scored += result.scored
                device_s += result.device_s
        return StepResult(step_id=plan.step_id, sampled=sampled, scored=scored, device_s=device_s)

    def _take_deltas(self) -> list[TokenDelta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def _stats(self, plan: StepPlan, before: Counters, *, schedule_s: float, device_s: float, step_s: float) -> StepStats:
        scheduler, now = self._scheduler, self._scheduler.counters
        return StepStats(
            step_id=plan.step_id,
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
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
        )
