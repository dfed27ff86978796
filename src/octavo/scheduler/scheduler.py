"""`Scheduler`: plan() chooses what the next step computes, apply() takes in what came of it.

One token budget a step, and one of positions whose logits are computed (max_num_seqs): running requests first and in order
of admission, then waiting ones while budget, places and blocks last. When blocks run out, the last running request is
preempted: its blocks go back, and later it is computed again from prompt + output, of which the prefix cache may still hold
a part. No token is sent twice. A request that wants its prompt's log-probabilities computes those positions itself, cached
or not, in chunks that leave each other row its logits.

Invariants: a step never exceeds the budget or max_num_seqs; each row of a plan has blocks for what it computes; every
request added ends in exactly one final delta; running[0] is the oldest request and is never preempted, and admission
made sure that it fits alone: so some request always moves on. Sources: Orca (Yu 2022) for iteration-level
scheduling, PagedAttention (Kwon 2023) sec. 4.5 for recomputation, Sarathi-Serve (Agrawal 2024) for chunked prefill.

It knows no arrays, device or clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from octavo.errors import EngineError
from octavo.kv.manager import KVManager
from octavo.messages.step import NewRow, RowStep, SampledRow, StepPlan, StepResult
from octavo.messages.wire import GenerateRequest, TokenDelta, TokenLogprobs
from octavo.scheduler.admission import Limits, check_request
from octavo.scheduler.queue import FcfsQueue
from octavo.scheduler.request_state import RequestState, Status
from octavo.scheduler.stop import Ending


@dataclass
class Counters:
    """Totals since the scheduler was made, in tokens unless said."""

    prompt_tokens: int = 0  # computed, not cached
    output_tokens: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    preemptions: int = 0  # events
    nan_rows: int = 0  # requests


class Scheduler:
    def __init__(self, limits: Limits, kv: KVManager) -> None:
        self.limits = limits
        self.kv = kv
        self.counters = Counters()
        self._states: dict[str, RequestState] = {}  # all unfinished requests
        self._waiting = FcfsQueue()
        self._running: list[RequestState] = []
        self._closed_rows: list[str] = []  # requests that left the batch since the last plan
        self._watermark_blocks = int(limits.watermark * kv.pool.num_blocks)
        self._num_steps = 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_requests(self) -> bool:
        return bool(self._states)

    # -- requests come and go ------------------------------------------------------------------------------------------

    def add(self, request: GenerateRequest) -> TokenDelta | None:
        """Queue `request`. Returns its final delta when its resume_token_ids end it already, else None.

        Raises RequestError or CapacityError (nothing is queued) when it can never run, EngineError when its id is in use.
        """
        if request.request_id in self._states:
            raise EngineError("a request with this id is unfinished")
        check_request(request, self.limits, self.kv.max_tokens)
        table = self.kv.open(adapter=request.adapter, cache_salt=request.cache_salt)
        state = RequestState(request, table, self.limits.max_model_len)
        if request.resume_token_ids and (ending := state.stop.check(state.token_ids[-1], state.num_tokens)):
            return TokenDelta(state.request_id, [], *ending)
        self._states[state.request_id] = state
        self._waiting.push(state)
        return None

    def abort(self, request_ids: Iterable[str]) -> list[TokenDelta]:
        """End these requests now and return their final deltas. Ids of requests that have ended are ignored."""
        states = [self._states[request_id] for request_id in request_ids if request_id in self._states]
        return [self._end(state, Ending("abort")) for state in dict.fromkeys(states)]

    def fail(self, request_id: str, error: str) -> TokenDelta | None:
        """End one request with finish_reason "error" and forget its cached blocks; None when it has ended already."""
        state = self._states.get(request_id)
        if state is None:
            return None
        self.kv.discard(state.table)
        return self._end(state, Ending("error"), error=error)

    def preempt_all(self) -> None:
        """Send every running request back to the waiting ones, in their order. None of them holds a block then."""
        while self._running:
            self._preempt(self._running[-1])

    # -- one step ------------------------------------------------------------------------------------------------------

    def plan(self) -> StepPlan | None:
        """Return what the next step computes; None when there is no request."""
        if not self._states:
            return None
        budget = self.limits.max_num_batched_tokens
        logits = self.limits.max_num_seqs
        chunk_limit = self._chunk_limit()
        new_rows: list[NewRow] = []
        rows: list[RowStep] = []

        num_preempted = self.counters.preemptions
        running = self._running
        position = 0
        while position < len(running) and budget:
            state = running[position]
            start = state.num_computed_tokens
            num_tokens = len(state.token_ids) - start
            if num_tokens > 1:
                num_tokens = min(num_tokens, chunk_limit, budget)
                if state.num_unscored_tokens:
                    num_tokens = min(num_tokens, logits - (len(running) - position - 1))
            new_block_ids: list[int] = []
            if start + num_tokens > state.table.capacity:
                added = self._extend(state, start + num_tokens)
                if added is None:
                    break  # it was the last of running, and preempted
                new_block_ids = added
            row = self._row(state, num_tokens, new_block_ids)
            rows.append(row)
            budget -= num_tokens
            logits -= row.num_logits
            position += 1

        if self.counters.preemptions == num_preempted:
            while budget and logits and len(running) < self.limits.max_num_seqs and (head := self._waiting.head()):
                limit = min(chunk_limit, budget, logits) if head.num_unscored_tokens else min(chunk_limit, budget)
                num_tokens = self._try_admit(head, limit)
                if num_tokens == 0:
                    break  # first come, first served: nobody overtakes the head
                new_rows.append(open_row(head))
                row = self._row(head, num_tokens, [])
                rows.append(row)
                budget -= num_tokens
                logits -= row.num_logits

        if not rows:
            raise EngineError(f"nothing can be scheduled though {len(self._states)} requests are unfinished")
        self._num_steps += 1
        released, self._closed_rows = self._closed_rows, []
        return StepPlan(step_id=self._num_steps, new_rows=new_rows, rows=rows, released=released, loads=self.kv.take_loads())

    def apply(self, plan: StepPlan, result: StepResult) -> list[TokenDelta]:
        """Take in a step's tokens: one delta for each request that got some. Rows of requests that ended meanwhile are skipped."""
        deltas = []
        self.kv.observe_step(plan.num_tokens, result.device_s)
        block_size = self.kv.block_size
        sampled, scored = iter(result.sampled), iter(result.scored)
        for row in plan.rows:
            sample = next(sampled) if row.wants_sample else None
            score = next(scored) if row.num_scores else None
            state = self._states.get(row.request_id)
            if state is None:
                continue
            if (sample is not None and sample.is_nan) or (score is not None and score.is_nan):
                self.counters.nan_rows += 1
                self.kv.discard(state.table)
                deltas.append(self._end(state, Ending("error"), error="the model produced NaN for this request"))
                continue
            computed = state.num_computed_tokens = row.start + row.num_tokens
            if computed >= (state.table.num_published + 1) * block_size:
                self.kv.commit(state.table, state.token_ids, computed)
            if score is not None:
                state.num_scored_tokens += len(score.logprobs)
                deltas.append(TokenDelta(row.request_id, [], num_cached_tokens=state.num_cached_tokens, prompt_logprobs=score.logprobs))
            if sample is not None:
                deltas.append(self._append(state, sample))
        return deltas

    def plan_alone(self, plan: StepPlan, row: RowStep) -> StepPlan:
        """Return a plan that computes `row` of `plan` by itself on a freshly opened worker row: for when the step failed half-way."""
        opened = {other.request_id for other in plan.rows}
        released = [request_id for request_id in plan.released if request_id not in opened]
        alone = replace(row, new_block_ids=[])
        return StepPlan(
            step_id=plan.step_id,
            new_rows=[open_row(self._states[row.request_id])],
            rows=[alone],
            released=[*released, row.request_id],
            loads=plan.loads,
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _chunk_limit(self) -> int:
        """Return the most tokens that one request may get in this step; a lone request has nobody to starve."""
        threshold = self.limits.long_prefill_token_threshold
        return threshold if threshold and len(self._states) > 1 else self.limits.max_num_batched_tokens

    def _extend(self, state: RequestState, num_tokens: int) -> list[int] | None:
        """Return the blocks added so that `state` covers `num_tokens`, preempting from the end of running; None when that met `state`."""
        while (added := self.kv.try_extend(state.table, num_tokens)) is None:
            victim = self._running[-1]
            self._preempt(victim)
            if victim is state:
                return None
        return added

    def _preempt(self, state: RequestState) -> None:
        self._running.pop()
        self._closed_rows.append(state.request_id)
        self.kv.release(state.table)
        state.status = Status.PREEMPTED
        state.num_computed_tokens = 0
        state.num_preemptions += 1
        self.counters.preemptions += 1
        self._waiting.restore(state)

    def _try_admit(self, head: RequestState, limit: int) -> int:
        """Move the head of waiting to running with blocks for up to `limit` tokens; return how many tokens, 0 if it does not fit."""
        # positions whose logits are wanted are computed, cached or not
        reusable = head.token_ids[: head.num_scored_tokens + 1] if head.num_unscored_tokens else head.token_ids
        if not self.kv.is_ready(head.table, reusable, was_preempted=head.num_preemptions > 0) and self._running:
            return 0
        hit = self.kv.lookup(head.table, reusable)
        num_cached = hit.num_tokens
        num_tokens = min(head.num_tokens - num_cached, limit)
        if not self.kv.try_admit(head.table, hit, num_cached + num_tokens, head.num_tokens, self._spare_blocks(head)):
            return 0
        self._waiting.pop()
        if head.status is Status.WAITING:
            head.num_cached_tokens = min(num_cached, head.num_prompt_tokens)
            self.counters.prefix_cache_queries += head.num_tokens
            self.counters.prefix_cache_hits += num_cached
        head.status = Status.RUNNING
        head.num_computed_tokens = num_cached
        self._running.append(head)
        return num_tokens

    def _spare_blocks(self, head: RequestState) -> int:
        """Return the blocks that must stay free beside running requests when `head` is admitted; a lone request needs none.

        A preempted request waits until each running one could grow by a block: else it would be preempted again at once.
        """
        if not self._running:
            return 0
        return max(self._watermark_blocks, len(self._running) if head.status is Status.PREEMPTED else 0)

    def _row(self, state: RequestState, num_tokens: int, new_block_ids: list[int]) -> RowStep:
        start = state.num_computed_tokens
        end = start + num_tokens
        num_scores = 0
        if start < state.num_prompt_tokens:
            self.counters.prompt_tokens += min(end, state.num_prompt_tokens) - start
            if state.num_unscored_tokens:
                num_scores = max(0, min(end, state.num_prompt_tokens - 1) - max(start, state.num_scored_tokens))
        return RowStep(
            request_id=state.request_id,
            start=start,
            num_tokens=num_tokens,
            new_block_ids=new_block_ids,
            wants_sample=end == len(state.token_ids),
            num_scores=num_scores,
        )

    def _append(self, state: RequestState, sample: SampledRow) -> TokenDelta:
        """Add sampled tokens up to the one that ends the request; return their delta."""
        token_ids, logprobs, ending = sample.token_ids, sample.logprobs, None
        for count, token_id in enumerate(token_ids, start=1):
            state.token_ids.append(token_id)
            ending = state.stop.check(token_id, len(state.token_ids))
            if ending is not None:
                token_ids, logprobs = token_ids[:count], logprobs and logprobs[:count]
                break
        self.counters.output_tokens += len(token_ids)
        if ending is not None:
            return self._end(state, ending, token_ids=token_ids, logprobs=logprobs)
        return TokenDelta(state.request_id, token_ids, None, None, logprobs, state.num_cached_tokens)

    def _end(
        self,
        state: RequestState,
        ending: Ending,
        *,
        token_ids: list[int] | None = None,
        logprobs: list[TokenLogprobs] | None = None,
        error: str | None = None,
    ) -> TokenDelta:
        """Take the request out of every table and return its final delta."""
        if state.status is Status.RUNNING:
            self._running.remove(state)
            self._closed_rows.append(state.request_id)
        else:
            self._waiting.remove(state)
        self.kv.release(state.table)
        state.status = Status.FINISHED
        del self._states[state.request_id]
        return TokenDelta(state.request_id, token_ids or [], *ending, logprobs, state.num_cached_tokens, error)


def open_row(state: RequestState) -> NewRow:
    """Return the row of a request with all that is known of it: its tokens so far and its blocks."""
    return NewRow(
        request_id=state.request_id,
        token_ids=list(state.token_ids),
        num_prompt_tokens=state.num_prompt_tokens,
        params=state.request.params,
        block_ids=list(state.table.block_ids),
        eos_token_ids=state.request.eos_token_ids,
    )
