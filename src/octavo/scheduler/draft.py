"""`StepDraft`: a step while it is being planned: what is left of it, and who has got how much.

A prompt in progress takes at most half of what is left, so that none freezes those behind it; what they leave goes back to the
first in the end. It knows nothing of the order in which requests come. Nothing of it outlives the StepPlan that is made of it.
"""

from __future__ import annotations

from octavo.kv.manager import KVManager
from octavo.messages.step import NewRow, RowStep
from octavo.scheduler.admission import Limits
from octavo.scheduler.request_state import RequestState

NO_BLOCKS: list[int] = []  # shared by all rows that get none; nobody changes it


class StepDraft:
    """`budget` and `logits` are what is left of the step's tokens, and of the positions whose logits it computes. `states` are those
    of `rows`. `num_prompt_tokens`: the prompt tokens among all that it computes."""

    def __init__(self, limits: Limits, kv: KVManager, budget: int, num_requests: int) -> None:
        self.budget = budget
        self.logits = limits.max_num_seqs
        self.rows: list[RowStep] = []
        self.states: list[RequestState] = []
        self.new_rows: list[NewRow] = []
        self.num_prompt_tokens = 0
        self._kv = kv
        self._chunked_prefill = limits.chunked_prefill
        self._cap = chunk_cap(limits, num_requests)
        self._cut: list[int] = []  # places of prompts that did not get all they want

    def share(self, state: RequestState, wanted: int, kept: int = 0) -> int:
        """Return how many of the `wanted` tokens of a prompt it gets at first; `kept`: tokens and logits that other rows must get.

        Half of what is left, a block at least, and no more than logits are left where it wants its log-probabilities."""
        left = self.budget - kept
        num_tokens = wanted
        if self._chunked_prefill:
            num_tokens = min(wanted, self._cap, max(left // 2, min(left, self._kv.block_size)))
        if state.num_unscored_tokens:
            num_tokens = min(num_tokens, left, self.logits - kept)
        return num_tokens

    def add(self, state: RequestState, num_tokens: int, wanted: int, new_block_ids: list[int]) -> None:
        """Give the request its next `num_tokens` positions of `wanted`; its blocks cover them."""
        start = state.num_planned_tokens
        num_scores = self._count_prompt(state, num_tokens)
        wants_sample = num_tokens == wanted
        state.num_planned_tokens = start + num_tokens
        if wants_sample:
            state.plain_until = min(state.table.capacity, state.last_position)
        else:
            self._cut.append(len(self.rows))
        self.rows.append(RowStep(state.request_id, start, num_tokens, new_block_ids, wants_sample, num_scores))
        self.states.append(state)
        self.budget -= num_tokens
        self.logits -= max(1, wants_sample + num_scores)  # a row that is cut short may be given its last token yet

    def hand_out_rest(self) -> None:
        """Give what is left of the budget to the prompts that were cut short, first come, as far as there are free blocks."""
        for place in self._cut:
            row, state = self.rows[place], self.states[place]
            more = min(self.budget, self._cap - row.num_tokens, state.num_tokens - state.num_planned_tokens)
            if more <= 0 or state.num_unscored_tokens:
                continue
            added = self._kv.try_extend(state.table, state.num_planned_tokens + more)
            if added is None:
                continue
            self._count_prompt(state, more)
            state.num_planned_tokens += more
            wants_sample = state.num_planned_tokens == state.num_tokens
            self.rows[place] = RowStep(row.request_id, row.start, row.num_tokens + more, row.new_block_ids + added, wants_sample)
            self.budget -= more

    def _count_prompt(self, state: RequestState, num_tokens: int) -> int:
        """Count those of the request's next `num_tokens` that are prompt tokens; return at how many the next one's
        log-probabilities are wanted."""
        start = state.num_planned_tokens
        end = start + num_tokens
        self.num_prompt_tokens += max(0, min(end, state.num_prompt_tokens) - start)
        if not state.num_unscored_tokens:
            return 0
        return max(0, min(end, state.num_prompt_tokens - 1) - max(start, state.num_scored_tokens))


def chunk_cap(limits: Limits, num_requests: int) -> int:
    """Return the most tokens that one request may get in a step; a lone request has nobody to starve."""
    threshold = limits.long_prefill_token_threshold
    if threshold == 0 or num_requests == 1:
        return limits.max_num_batched_tokens
    if limits.adaptive_threshold:
        return max(threshold, limits.max_num_batched_tokens // num_requests)
    return threshold


def open_row(state: RequestState) -> NewRow:
    """Return the row of a request with all that is known of it: its tokens so far and its blocks."""
    return NewRow(
        request_id=state.request_id,
        token_ids=list(state.token_ids),
        num_prompt_tokens=state.num_prompt_tokens,
        params=state.request.params,
        block_ids=list(state.table.block_ids),
        eos_token_ids=state.request.eos_token_ids,
        grammar=state.grammar,
    )
