"""Scheduler -> worker and back: what one step computes.

The plan says everything the worker needs and the worker remembers only rows: a `NewRow` opens one, `released`
closes it, a `RowStep` gives it `num_tokens` positions from `start` on. There is no prefill and no decode here: a row
samples when its step reaches its last known token (`wants_sample`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.messages.wire import TokenLogprobs
from octavo.params import SamplingParams


class NewRow(msgspec.Struct, frozen=True, kw_only=True):
    """A request enters the batch, for the first time or after preemption.

    `token_ids` are prompt + output known so far; the first `num_prompt_tokens` are the prompt.
    `block_ids` cover the cached prefix; its RowStep may bring more. `grammar`: what the answer must match, a grammar.CompiledGrammar;
    None for any text.
    """

    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    block_ids: list[int]
    eos_token_ids: tuple[int, ...] = ()
    grammar: Any = None


class RowStep(msgspec.Struct, frozen=True, gc=False):
    """Compute positions start .. start + num_tokens - 1 of one row. `new_block_ids` are appended to its block table first.
    `num_scores`: of so many of the step's last tokens (but for the one that samples) the next token's log-probabilities are
    wanted; it is a prompt token."""

    request_id: str
    start: int
    num_tokens: int
    new_block_ids: list[int]
    wants_sample: bool
    num_scores: int = 0

    @property
    def num_logits(self) -> int:
        """At how many of its last positions logits are needed."""
        return self.num_scores + self.wants_sample


class BlockLoad(msgspec.Struct, frozen=True, gc=False):
    """`data` is what the block is to hold, as the backend's read_block gave it."""

    block_id: int
    data: bytes


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plans are carried out in the order in which they were made, one made while another runs included.

    `new_rows` all appear in `rows` too. `released` rows are closed before new ones open (an id may be in both:
    preempted and back). Releasing an id that has no row is no error: a step that failed half-way is taken up again so."""

    step_id: int
    new_rows: list[NewRow]
    rows: list[RowStep]
    released: list[str]
    loads: list[BlockLoad] = []  # carried out before the rows are computed; again, if the step is taken up again

    @property
    def num_tokens(self) -> int:
        return sum([row.num_tokens for row in self.rows])

    @property
    def num_logits(self) -> int:
        return sum([row.num_scores + row.wants_sample for row in self.rows])


class SampledRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a row that wanted a sample got. `is_nan`: its logits held NaN; token_ids is empty and the request must fail.
    token_ids empty otherwise: the row was not run. `is_complete`: the answer matches its grammar, and nothing can follow.
    `grammar_error`: why it cannot match any more; token_ids is empty and the request must fail."""

    request_id: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    is_nan: bool = False
    is_complete: bool = False
    grammar_error: str | None = None


class ScoredRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The log-probabilities that a row wanted of its prompt. `is_nan`: its logits held NaN, and the request must fail.
    logprobs empty otherwise: the row was not run."""

    request_id: str
    logprobs: list[TokenLogprobs]
    is_nan: bool = False


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """`sampled` follows the order of the plan's rows that wanted a sample, `scored` that of those with num_scores."""

    step_id: int
    sampled: list[SampledRow]
    scored: list[ScoredRow] = []
    device_s: float
