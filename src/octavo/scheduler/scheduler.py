"""`Scheduler`: plan() chooses what the next step computes, apply() takes in what came of it.

One token budget a step, and one of positions whose logits are computed (max_num_seqs): running requests first and by rank,
then waiting ones while budget, places and blocks last. A prompt in progress takes at most half of what is left, so that none
freezes those behind it; what they leave goes back to the first. While others wait for their next token, the prompts of a
step are cut to what is known to take mixed_step_s (scheduler/pace.py). When blocks run out, the running request of the last rank
is preempted: its blocks go back, and later it is computed again from prompt + output, of which the prefix cache may still
hold a part. No token is sent twice. A request that wants its prompt's log-probabilities computes those positions itself,
cached or not, in chunks that leave each other row its logits.

A step may be planned while the one before it computes: rows that sample there go on with a token that only the worker
will know. Plans are run in the order in which they were made, so blocks are free for later plans as soon as they are given
back, even while a step that writes to them is still to come. A request that ends leaves its row of the next plan without
a meaning; one that is sure to end by length is not planned again.

Invariants: a step never exceeds the budget or max_num_seqs; each row of a plan has blocks for what it computes; every
request added ends in exactly one final delta; running[0] has the first rank and is never preempted, and admission made
sure that it fits alone: so some request always moves on. Only computed blocks reach the prefix cache.

Cost: a request that decodes is looked at closely only where something can change, at the border of a block and at its end;
in between (`plain_until`, `quiet_until`) it is one row and one delta a step, whatever the size of the pool. Sources: Orca
(Yu 2022) for iteration-level scheduling, PagedAttention (Kwon 2023) sec. 4.5 for recomputation, Sarathi-Serve (Agrawal
2024) for chunked prefill.

It knows no arrays, device or clock.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from octavo.errors import EngineError
from octavo.kv.manager import KVManager
from octavo.messages.step import NewRow, RowStep, SampledRow, ScoredRow, StepPlan, StepResult
from octavo.messages.wire import GenerateRequest, TokenDelta, TokenLogprobs
from octavo.scheduler.admission import Limits, check_request
from octavo.scheduler.draft import StepDraft
from octavo.scheduler.pace import PromptPace
from octavo.scheduler.queue import FairQueue, RankedQueue, WaitingQueue
from octavo.scheduler.request_state import RequestState, Status, rank_of
from octavo.scheduler.stop import Ending

MAX_IN_FLIGHT = 2  # plans made and not applied
NO_BLOCKS: list[int] = []  # shared by all rows that get none; nobody changes it


@dataclass
class Counters:
    """Totals since the scheduler was made, in tokens unless said."""

    prompt_tokens: int = 0  # computed, not cached
    output_tokens: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0  # in the pool
    external_queries: int = 0  # looked up beyond the pool
    external_hits: int = 0
    preemptions: int = 0  # events
    nan_rows: int = 0  # requests


class Scheduler:
    def __init__(self, limits: Limits, kv: KVManager) -> None:
        self.limits = limits
        self.kv = kv
        self.counters = Counters()
        self._states: dict[str, RequestState] = {}  # all unfinished requests
        self._waiting: WaitingQueue = RankedQueue() if limits.policy == "priority" else FairQueue()
        self._running: list[RequestState] = []  # by rank
        self._in_flight: deque[list[RequestState]] = deque()  # of each plan not applied, the states of its rows
        self._closed_rows: list[str] = []  # requests that left the batch since the last plan
        self._pace = PromptPace(limits.mixed_step_s if limits.chunked_prefill else None, limits.max_num_batched_tokens)
        self._watermark_blocks = int(limits.watermark * kv.pool.num_blocks)
        self._num_added = 0
        self._num_steps = 0
        self._is_head_deferred = False

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_deferred(self) -> int:
        """Waiting requests, at most one, whose KV was being read back from beyond the pool when the last step was planned."""
        return int(self._is_head_deferred)

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
        self._num_added += 1
        rank = (request.priority if self.limits.policy == "priority" else 0, self._num_added)
        state = RequestState(request, table, self.limits.max_model_len, rank)
        if request.resume_token_ids and (ending := state.stop.check(state.token_ids[-1], state.num_tokens)):
            return TokenDelta(state.request_id, [], *ending)
        self._states[state.request_id] = state
        self._waiting.push(state)
        return None

    def abort(self, request_ids: Iterable[str]) -> list[TokenDelta]:
        """End these requests now and return their final deltas. Ids of requests that have ended are ignored."""
        states = [self._states[request_id] for request_id in request_ids if request_id in self._states]
        return [self._end(state, Ending("abort")) for state in dict.fromkeys(states)]

    def abort_all(self) -> list[TokenDelta]:
        """End every request now and return the final deltas."""
        return self.abort(list(self._states))

    def fail(self, request_id: str, error: str) -> TokenDelta | None:
        """End one request with finish_reason "error" and forget its cached blocks; None when it has ended already."""
        state = self._states.get(request_id)
        if state is None:
            return None
        self.kv.discard(state.table)
        return self._end(state, Ending("error"), error=error)

    def refuse(self, request_id: str, error: str) -> TokenDelta | None:
        """End a request that has waited too long for its first step; None when it has had that, or has ended."""
        state = self._states.get(request_id)
        if state is None or state.status is not Status.WAITING:
            return None
        return replace(self._end(state, Ending("error"), error=error), error_code="server_overloaded")

    def preempt_all(self) -> None:
        """Send every running request back to the waiting ones, in their order. None of them holds a block then.

        Raises EngineError while a plan is in flight: its tokens must be known first."""
        if self._in_flight:
            raise EngineError("requests cannot be preempted while a step that samples for them is in flight")
        while self._running:
            self._preempt(self._running[-1])

    # -- one step ------------------------------------------------------------------------------------------------------

    def plan(self) -> StepPlan | None:
        """Return what the next step computes; None when there is nothing to plan, which may be because all that there is
        ends in the step in flight. Raises EngineError when two plans wait to be applied."""
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            raise EngineError(f"{len(self._in_flight)} plans are in flight; apply one first")
        if not self._states:
            return None
        draft = StepDraft(self._chunk_cap(), self._budget(), self.limits.max_num_seqs)
        num_preempted = self.counters.preemptions
        self._is_head_deferred = False
        self._plan_running(draft)
        if self.counters.preemptions == num_preempted:
            self._plan_waiting(draft)
        self._hand_out_rest(draft)
        if not draft.rows:
            if not self._in_flight:
                raise EngineError(f"nothing can be scheduled though {len(self._states)} requests are unfinished")
            return None
        self._in_flight.append(draft.states)
        self._num_steps += 1
        released, self._closed_rows = self._closed_rows, []
        return StepPlan(step_id=self._num_steps, new_rows=draft.new_rows, rows=draft.rows, released=released, loads=self.kv.take_loads())

    def apply(self, plan: StepPlan, result: StepResult) -> list[TokenDelta]:
        """Take in the tokens of the oldest plan in flight: one delta for each request that got some. Rows of requests that
        ended meanwhile are skipped, and so are rows that were not run (their `token_ids` are empty)."""
        num_tokens = plan.num_tokens
        self.kv.observe_step(num_tokens, result.device_s)
        self._pace.observe(num_tokens - len(plan.rows), result.device_s)
        states = self._in_flight.popleft()
        deltas: list[TokenDelta] = []
        if result.scored or len(result.sampled) < len(states):
            self._apply_prompts(plan, states, result.scored, deltas)
            states = [state for row, state in zip(plan.rows, states, strict=True) if row.wants_sample]
        for state, sample in zip(states, result.sampled, strict=True):
            token_ids, known = sample.token_ids, state.token_ids
            if len(known) < state.quiet_until and len(token_ids) == 1 and token_ids[0] not in state.ending_ids:
                known += token_ids
                deltas.append(TokenDelta(state.request_id, token_ids, None, None, sample.logprobs, state.num_cached_tokens))
            elif (delta := self._apply_sample(state, sample)) is not None:
                deltas.append(delta)
        self.counters.output_tokens += sum([len(delta.token_ids) for delta in deltas])
        return deltas

    def plan_alone(self, plan: StepPlan, row: RowStep) -> StepPlan | None:
        """Return a plan that computes `row` of `plan` by itself on a freshly opened worker row, for when the step failed
        half-way; None when its request needs it no more. `plan_around` comes first."""
        state = self._states.get(row.request_id)
        if state is None or state.status is not Status.RUNNING:
            return None
        alone = replace(row, new_block_ids=NO_BLOCKS)
        return StepPlan(step_id=plan.step_id, new_rows=[open_row(state)], rows=[alone], released=[row.request_id])

    # -- the parts of a plan -------------------------------------------------------------------------------------------

    def _plan_running(self, draft: StepDraft) -> None:
        """Give each running request its next token, prompts in progress their share, preempting where blocks run out."""
        running, rows, states = self._running, draft.rows, draft.states
        num_plain = 0  # rows not yet taken off the draft's budget and logits: one of each
        for position, state in enumerate(running, start=1):  # preemption takes from its end, which this loop follows
            start = state.num_planned_tokens
            if start < state.plain_until:
                state.num_planned_tokens = start + 1
                rows.append(RowStep(state.request_id, start, 1, NO_BLOCKS, True))
                states.append(state)
                num_plain += 1
                continue
            if start == state.last_position:
                continue  # its last token is being sampled
            num_tokens = wanted = max(1, len(state.token_ids) - start)
            if wanted > 1:
                kept = num_plain + len(running) - position  # one for each row before and behind it
                num_tokens = self._share(wanted, draft.budget - kept, draft.cap)
                if state.num_unscored_tokens:
                    num_tokens = min(num_tokens, draft.budget - kept, draft.logits - kept)
            new_block_ids = NO_BLOCKS
            if start + num_tokens > state.table.capacity:
                added = self._extend(state, start + num_tokens)
                if added is None:
                    break  # it was the last of running, and preempted
                new_block_ids = added
            self._add_row(draft, state, num_tokens, wanted, new_block_ids)
        draft.budget -= num_plain
        draft.logits -= num_plain

    def _plan_waiting(self, draft: StepDraft) -> None:
        """Admit waiting requests while there is budget, a place and blocks; nobody overtakes the head."""
        while draft.budget and draft.logits and len(self._running) < self.limits.max_num_seqs and (head := self._waiting.head()):
            num_tokens = self._try_admit(head, draft.budget, draft.logits, draft.cap)
            if num_tokens == 0:
                break
            draft.new_rows.append(open_row(head))
            self._add_row(draft, head, num_tokens, head.num_tokens - head.num_planned_tokens, NO_BLOCKS)

    def _add_row(self, draft: StepDraft, state: RequestState, num_tokens: int, wanted: int, new_block_ids: list[int]) -> None:
        """Plan the request's next `num_tokens` positions of `wanted`; its blocks cover them."""
        start = state.num_planned_tokens
        num_scores = self._count_prompt(state, num_tokens)
        wants_sample = num_tokens == wanted
        state.num_planned_tokens = start + num_tokens
        if wants_sample:
            state.plain_until = min(state.table.capacity, state.last_position)
        else:
            draft.cut.append(len(draft.rows))
        draft.rows.append(RowStep(state.request_id, start, num_tokens, new_block_ids, wants_sample, num_scores))
        draft.states.append(state)
        draft.budget -= num_tokens
        draft.logits -= max(1, wants_sample + num_scores)  # a row that is cut short may be given its last token yet

    def _hand_out_rest(self, draft: StepDraft) -> None:
        """Give what is left of the budget to the prompts that were cut short, first come, as far as there are free blocks."""
        for place in draft.cut:
            row, state = draft.rows[place], draft.states[place]
            more = min(draft.budget, draft.cap - row.num_tokens, state.num_tokens - state.num_planned_tokens)
            if more <= 0 or state.num_unscored_tokens:
                continue
            added = self.kv.try_extend(state.table, state.num_planned_tokens + more)
            if added is None:
                continue
            self._count_prompt(state, more)
            state.num_planned_tokens += more
            wants_sample = state.num_planned_tokens == state.num_tokens
            draft.rows[place] = RowStep(row.request_id, row.start, row.num_tokens + more, row.new_block_ids + added, wants_sample)
            draft.budget -= more

    def _budget(self) -> int:
        """Return the tokens of this step: all that it holds, or, where others wait for their next token, what keeps the pace."""
        budget = self.limits.max_num_batched_tokens
        if any(state.plain_until for state in self._running):
            budget = min(budget, len(self._running) + self._pace.num_tokens)
        return budget

    def _chunk_cap(self) -> int:
        """Return the most tokens that one request may get in this step; a lone request has nobody to starve."""
        limits, num_requests = self.limits, len(self._states)
        threshold = limits.long_prefill_token_threshold
        if threshold == 0 or num_requests == 1:
            return limits.max_num_batched_tokens
        if limits.adaptive_threshold:
            return max(threshold, limits.max_num_batched_tokens // num_requests)
        return threshold

    def _share(self, wanted: int, left: int, cap: int) -> int:
        """Return how many of the `left` tokens a prompt that wants `wanted` gets at first: half of them, a block at least."""
        if not self.limits.chunked_prefill:
            return wanted
        return min(wanted, cap, max(left // 2, min(left, self.kv.block_size)))

    def _count_prompt(self, state: RequestState, num_tokens: int) -> int:
        """Count those of the request's next `num_tokens` that are prompt tokens; return at how many the next one's
        log-probabilities are wanted."""
        start = state.num_planned_tokens
        end = start + num_tokens
        self.counters.prompt_tokens += max(0, min(end, state.num_prompt_tokens) - start)
        if not state.num_unscored_tokens:
            return 0
        return max(0, min(end, state.num_prompt_tokens - 1) - max(start, state.num_scored_tokens))

    # -- the parts of apply ---------------------------------------------------------------------------------------------

    def _apply_prompts(self, plan: StepPlan, states: list[RequestState], scored: list[ScoredRow], deltas: list[TokenDelta]) -> None:
        """Take in the rows that do not sample, and the log-probabilities of prompts."""
        scores = iter(scored)
        for row, state in zip(plan.rows, states, strict=True):
            score = next(scores) if row.num_scores else None
            if state.status is Status.FINISHED:
                continue
            if score is not None and score.is_nan:
                deltas.append(self._end_nan(state))
                continue
            if not row.wants_sample:
                self._commit(state, row.start + row.num_tokens)
            if score is not None and score.logprobs:
                state.num_scored_tokens += len(score.logprobs)
                deltas.append(TokenDelta(row.request_id, [], num_cached_tokens=state.num_cached_tokens, prompt_logprobs=score.logprobs))

    def _apply_sample(self, state: RequestState, sample: SampledRow) -> TokenDelta | None:
        """Take in what a row sampled, whatever it means for its request; return the delta if there is one."""
        if state.status is Status.FINISHED:
            return None
        if sample.is_nan:
            return self._end_nan(state)
        if not sample.token_ids:
            return None
        self._commit(state, state.num_tokens)
        state.token_ids += sample.token_ids
        if state.num_tokens < state.stop.max_total and state.ending_ids.isdisjoint(sample.token_ids):
            return answer(state, sample.token_ids, sample.logprobs)
        return self._end_within(state, sample)

    def _commit(self, state: RequestState, num_computed_tokens: int) -> None:
        """Publish what the request's computed tokens have filled, unless its blocks are gone: it may have been preempted meanwhile."""
        if state.status is Status.RUNNING:
            self.kv.commit(state.table, state.token_ids, num_computed_tokens)
            next_border = (num_computed_tokens // self.kv.block_size + 1) * self.kv.block_size
            state.quiet_until = min(next_border, state.last_position)

    def _end_nan(self, state: RequestState) -> TokenDelta:
        self.counters.nan_rows += 1
        self.kv.discard(state.table)
        return self._end(state, Ending("error"), error="the model produced NaN for this request")

    # -- between waiting and running -----------------------------------------------------------------------------------

    def _try_admit(self, head: RequestState, left: int, logits: int, cap: int) -> int:
        """Move the head of waiting to running with blocks for some of the `left` tokens; return how many, 0 if it does not fit."""
        # positions whose logits are wanted are computed, cached or not
        reusable = head.token_ids[: head.num_scored_tokens + 1] if head.num_unscored_tokens else head.token_ids
        if not self.kv.is_ready(head.table, reusable, was_preempted=head.num_preemptions > 0) and self._running:
            self._is_head_deferred = True
            return 0
        hit = self.kv.lookup(head.table, reusable)
        num_cached = hit.num_tokens
        wanted = head.num_tokens - num_cached
        num_tokens = self._share(wanted, left, cap)
        if head.num_unscored_tokens:
            num_tokens = min(num_tokens, left, logits)
        if num_tokens > left:
            return 0
        if not self.kv.try_admit(head.table, hit, num_cached + num_tokens, head.num_tokens, self._spare_blocks()):
            return 0
        self._waiting.take(head)
        self._waiting.charge(head, wanted)
        if head.status is Status.WAITING:
            self._count_hit(head, num_cached)
        head.status = Status.RUNNING
        head.num_planned_tokens = num_cached
        insort(self._running, head, key=rank_of)
        return num_tokens

    def _count_hit(self, state: RequestState, num_cached: int) -> None:
        """Count what was found of a request that is admitted for the first time."""
        num_loaded = state.table.num_loaded_tokens
        state.num_cached_tokens = min(num_cached, state.num_prompt_tokens)
        state.num_loaded_tokens = min(num_loaded, state.num_cached_tokens)
        counters = self.counters
        counters.prefix_cache_queries += state.num_tokens
        counters.prefix_cache_hits += num_cached - num_loaded
        if self.kv.has_tier:
            counters.external_queries += state.num_tokens
            counters.external_hits += num_loaded

    def _spare_blocks(self) -> int:
        """Return the blocks that must stay free beside running requests when one is admitted: the watermark, and one for
        each, or the newcomer would be preempted at once. A lone request needs none."""
        return max(self._watermark_blocks, len(self._running)) if self._running else 0

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
        state.num_planned_tokens = state.plain_until = state.quiet_until = 0
        state.num_preemptions += 1
        self.counters.preemptions += 1
        self._waiting.push(state)

    def _end_within(self, state: RequestState, sample: SampledRow) -> TokenDelta:
        """Return the delta of sampled tokens, known already, of which one may end the request: those after it are dropped."""
        token_ids, logprobs, known = sample.token_ids, sample.logprobs, state.token_ids
        num_before = len(known) - len(token_ids)
        for count, token_id in enumerate(token_ids, start=1):
            ending = state.stop.check(token_id, num_before + count)
            if ending is not None:
                del known[num_before + count :]
                return self._end(state, ending, token_ids=token_ids[:count], logprobs=logprobs and logprobs[:count])
        return answer(state, token_ids, logprobs)

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
            del self._running[bisect_left(self._running, state.rank, key=rank_of)]
            self._closed_rows.append(state.request_id)
        else:
            self._waiting.take(state)
        self._waiting.charge(state, state.num_tokens - state.num_prompt_tokens)
        self.kv.release(state.table)
        state.status = Status.FINISHED
        state.quiet_until = 0
        del self._states[state.request_id]
        return TokenDelta(
            state.request_id,
            token_ids or [],
            *ending,
            logprobs,
            state.num_cached_tokens,
            error,
            num_preemptions=state.num_preemptions,
            num_loaded_tokens=state.num_loaded_tokens,
        )


def answer(state: RequestState, token_ids: list[int], logprobs: list[TokenLogprobs] | None) -> TokenDelta:
    """Return the delta of tokens that do not end the request."""
    cached, loaded = state.num_cached_tokens, state.num_loaded_tokens
    return TokenDelta(state.request_id, token_ids, None, None, logprobs, cached, num_loaded_tokens=loaded)


def plan_around(plan: StepPlan) -> StepPlan:
    """Return what is left of `plan` without its rows: worker rows to close, blocks to fill."""
    kept = {row.request_id for row in plan.rows}
    released = [request_id for request_id in plan.released if request_id not in kept]
    return StepPlan(step_id=plan.step_id, new_rows=[], rows=[], released=released, loads=plan.loads)


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
