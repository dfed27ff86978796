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

from collections import deque
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from octavo.errors import EngineError
from octavo.kv.manager import KVManager
from octavo.messages.step import RowStep, SampledRow, ScoredRow, StepPlan, StepResult
from octavo.messages.wire import GenerateRequest, TokenDelta, TokenLogprobs
from octavo.scheduler.admission import Limits, check_request
from octavo.scheduler.counters import Counters
from octavo.scheduler.draft import NO_BLOCKS, StepDraft, open_row
from octavo.scheduler.pace import PromptPace
from octavo.scheduler.request_state import RequestState, Status
from octavo.scheduler.roster import Roster
from octavo.scheduler.stop import Ending

MAX_IN_FLIGHT = 2  # plans made and not applied


class Scheduler:
    def __init__(self, limits: Limits, kv: KVManager) -> None:
        self.limits = limits
        self.kv = kv
        self.counters = Counters()
        self._roster = Roster(limits, kv, self.counters)
        self._in_flight: deque[list[RequestState]] = deque()  # of each plan not applied, the states of its rows
        self._pace = PromptPace(limits.mixed_step_s if limits.chunked_prefill else None, limits.max_num_batched_tokens)
        self._num_steps = 0
        self._is_head_deferred = False

    @property
    def num_running(self) -> int:
        return len(self._roster.running)

    @property
    def num_waiting(self) -> int:
        return len(self._roster.waiting)

    @property
    def num_deferred(self) -> int:
        """Waiting requests, at most one, whose KV was being read back from beyond the pool when the last step was planned."""
        return int(self._is_head_deferred)

    @property
    def has_requests(self) -> bool:
        return bool(self._roster.states)

    # -- requests come and go ------------------------------------------------------------------------------------------

    def add(self, request: GenerateRequest, grammar: Any = None) -> TokenDelta | None:
        """Queue `request`. Returns its final delta when its resume_token_ids end it already, else None.

        `grammar`: what its answer must match, a grammar.CompiledGrammar.

        Raises RequestError or CapacityError (nothing is queued) when it can never run, EngineError when its id is in use.
        """
        if request.request_id in self._roster.states:
            raise EngineError("a request with this id is unfinished")
        check_request(request, self.limits, self.kv.max_tokens)
        state = self._roster.open(request)
        state.grammar = grammar
        if request.resume_token_ids and (ending := state.stop.check(state.token_ids[-1], state.num_tokens)):
            return TokenDelta(state.request_id, [], *ending)
        self._roster.enqueue(state)
        return None

    def abort(self, request_ids: Iterable[str]) -> list[TokenDelta]:
        """End these requests now and return their final deltas. Ids of requests that have ended are ignored."""
        unfinished = self._roster.states
        states = [unfinished[request_id] for request_id in request_ids if request_id in unfinished]
        return [self._roster.end(state, Ending("abort")) for state in dict.fromkeys(states)]

    def abort_all(self) -> list[TokenDelta]:
        """End every request now and return the final deltas."""
        return self.abort(list(self._roster.states))

    def fail(self, request_id: str, error: str) -> TokenDelta | None:
        """End one request with finish_reason "error" and forget its cached blocks; None when it has ended already."""
        state = self._roster.states.get(request_id)
        if state is None:
            return None
        self.kv.discard(state.table)
        return self._roster.end(state, Ending("error"), error=error)

    def refuse(self, request_id: str, error: str) -> TokenDelta | None:
        """End a request that has waited too long for its first step; None when it has had that, or has ended."""
        state = self._roster.states.get(request_id)
        if state is None or state.status is not Status.WAITING:
            return None
        return replace(self._roster.end(state, Ending("error"), error=error), error_code="server_overloaded")

    def preempt_all(self) -> None:
        """Send every running request back to the waiting ones, in their order. None of them holds a block then.

        Raises EngineError while a plan is in flight: its tokens must be known first."""
        if self._in_flight:
            raise EngineError("requests cannot be preempted while a step that samples for them is in flight")
        self._roster.preempt_all()

    # -- one step ------------------------------------------------------------------------------------------------------

    def plan(self) -> StepPlan | None:
        """Return what the next step computes; None when there is nothing to plan, which may be because all that there is
        ends in the step in flight. Raises EngineError when two plans wait to be applied."""
        if len(self._in_flight) >= MAX_IN_FLIGHT:
            raise EngineError(f"{len(self._in_flight)} plans are in flight; apply one first")
        num_requests = len(self._roster.states)
        if not num_requests:
            return None
        draft = StepDraft(self.limits, self.kv, self._budget(), num_requests)
        num_preempted = self.counters.preemptions
        self._is_head_deferred = False
        self._plan_running(draft)
        if self.counters.preemptions == num_preempted:
            self._plan_waiting(draft)
        draft.hand_out_rest()
        if not draft.rows:
            if not self._in_flight:
                raise EngineError(f"nothing can be scheduled though {num_requests} requests are unfinished")
            return None
        self.counters.prompt_tokens += draft.num_prompt_tokens
        self._in_flight.append(draft.states)
        self._num_steps += 1
        return StepPlan(
            step_id=self._num_steps,
            new_rows=draft.new_rows,
            rows=draft.rows,
            released=self._roster.take_closed_rows(),
            loads=self.kv.take_loads(),
        )

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
        state = self._roster.states.get(row.request_id)
        if state is None or state.status is not Status.RUNNING:
            return None
        alone = replace(row, new_block_ids=NO_BLOCKS)
        return StepPlan(step_id=plan.step_id, new_rows=[open_row(state)], rows=[alone], released=[row.request_id])

    # -- the parts of a plan -------------------------------------------------------------------------------------------

    def _plan_running(self, draft: StepDraft) -> None:
        """Give each running request its next token, prompts in progress their share, preempting where blocks run out."""
        running, rows, states = self._roster.running, draft.rows, draft.states
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
                num_tokens = draft.share(state, wanted, kept)
            new_block_ids = NO_BLOCKS
            if start + num_tokens > state.table.capacity:
                added = self._roster.extend(state, start + num_tokens)
                if added is None:
                    break  # it was the last of running, and preempted
                new_block_ids = added
            draft.add(state, num_tokens, wanted, new_block_ids)
        draft.budget -= num_plain
        draft.logits -= num_plain

    def _plan_waiting(self, draft: StepDraft) -> None:
        """Admit waiting requests while there is budget, a place and blocks; nobody overtakes the head."""
        running, waiting, most = self._roster.running, self._roster.waiting, self.limits.max_num_seqs
        while draft.budget and draft.logits and len(running) < most and (head := waiting.head()):
            if not self._try_admit(head, draft):
                break

    def _try_admit(self, head: RequestState, draft: StepDraft) -> bool:
        """Admit the head of waiting and give it tokens, if what is left of the step and the blocks allow; return whether they do."""
        # positions whose logits are wanted are computed, cached or not
        reusable = head.token_ids[: head.num_scored_tokens + 1] if head.num_unscored_tokens else head.token_ids
        if not self.kv.is_ready(head.table, reusable, was_preempted=head.num_preemptions > 0) and self._roster.running:
            self._is_head_deferred = True
            return False
        hit = self.kv.lookup(head.table, reusable)
        wanted = head.num_tokens - hit.num_tokens
        num_tokens = draft.share(head, wanted)
        if num_tokens > draft.budget or not self._roster.try_admit(head, hit, num_tokens):
            return False
        draft.new_rows.append(open_row(head))
        draft.add(head, num_tokens, wanted, NO_BLOCKS)
        return True

    def _budget(self) -> int:
        """Return the tokens of this step: all that it holds, or, where others wait for their next token, what keeps the pace."""
        budget = self.limits.max_num_batched_tokens
        running = self._roster.running
        if any(state.plain_until for state in running):
            budget = min(budget, len(running) + self._pace.num_tokens)
        return budget

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
        if sample.grammar_error is not None:
            return replace(self._roster.end(state, Ending("error"), error=sample.grammar_error), error_code="invalid_grammar")
        if not sample.token_ids:
            return None
        self._commit(state, state.num_tokens)
        state.token_ids += sample.token_ids
        if sample.is_complete:
            return self._end_complete(state, sample)
        if state.num_tokens < state.stop.max_total and state.ending_ids.isdisjoint(sample.token_ids):
            return answer(state, sample.token_ids, sample.logprobs)
        return self._end_within(state, sample)

    def _commit(self, state: RequestState, num_computed_tokens: int) -> None:
        """Publish what the request's computed tokens have filled, unless its blocks are gone: it may have been preempted meanwhile."""
        if state.status is Status.RUNNING:
            self.kv.commit(state.table, state.token_ids, num_computed_tokens)
            next_border = (num_computed_tokens // self.kv.block_size + 1) * self.kv.block_size
            state.quiet_until = min(next_border, state.last_position) if state.grammar is None else 0  # any token may complete an answer

    def _end_nan(self, state: RequestState) -> TokenDelta:
        self.counters.nan_rows += 1
        self.kv.discard(state.table)
        return self._roster.end(state, Ending("error"), error="the model produced NaN for this request")

    def _end_complete(self, state: RequestState, sample: SampledRow) -> TokenDelta:
        """Return the final delta of an answer that its grammar lets nothing follow."""
        ending = state.stop.check(sample.token_ids[-1], state.num_tokens)
        if ending is None or ending.finish_reason == "length":
            ending = Ending("stop")
        return self._roster.end(state, ending, token_ids=sample.token_ids, logprobs=sample.logprobs)

    def _end_within(self, state: RequestState, sample: SampledRow) -> TokenDelta:
        """Return the delta of sampled tokens, known already, of which one may end the request: those after it are dropped."""
        token_ids, logprobs, known = sample.token_ids, sample.logprobs, state.token_ids
        num_before = len(known) - len(token_ids)
        for count, token_id in enumerate(token_ids, start=1):
            ending = state.stop.check(token_id, num_before + count)
            if ending is not None:
                del known[num_before + count :]
                return self._roster.end(state, ending, token_ids=token_ids[:count], logprobs=logprobs and logprobs[:count])
        return answer(state, token_ids, logprobs)


def answer(state: RequestState, token_ids: list[int], logprobs: list[TokenLogprobs] | None) -> TokenDelta:
    """Return the delta of tokens that do not end the request."""
    cached, loaded = state.num_cached_tokens, state.num_loaded_tokens
    return TokenDelta(state.request_id, token_ids, None, None, logprobs, cached, num_loaded_tokens=loaded)


def plan_around(plan: StepPlan) -> StepPlan:
    """Return what is left of `plan` without its rows: worker rows to close, blocks to fill."""
    kept = {row.request_id for row in plan.rows}
    released = [request_id for request_id in plan.released if request_id not in kept]
    return StepPlan(step_id=plan.step_id, new_rows=[], rows=[], released=released, loads=plan.loads)
