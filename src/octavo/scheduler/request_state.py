"""`RequestState`: what the engine knows of one unfinished request. The only value in Octavo that changes.

There is no prefill and no decode: a request has num_planned_tokens and num_tokens, and the scheduler hands out positions
until they meet; the step in which they meet samples the next token. A step may be planned while the one before it still
computes: then the next position is planned whose token is not known yet (the worker will have it in time).

Invariants between plan() and apply(), in any order of theirs:

    num_prompt_tokens <= num_tokens < stop.max_total
    0 <= num_planned_tokens < num_tokens + the plans in flight; num_planned_tokens < stop.max_total
    plain_until <= what its blocks cover
    WAITING, PREEMPTED: no blocks, num_planned_tokens == 0
    RUNNING: its blocks cover num_planned_tokens positions, and the worker holds a row for it or is about to
"""

from __future__ import annotations

import enum
from typing import Any

from octavo.kv.block import BlockTable
from octavo.messages.wire import GenerateRequest
from octavo.scheduler.stop import StopRule

Rank = tuple[int, int]


class Status(enum.Enum):
    WAITING = enum.auto()
    RUNNING = enum.auto()
    PREEMPTED = enum.auto()
    FINISHED = enum.auto()  # final; the state is in no queue any more


class RequestState:
    __slots__ = (
        "ending_ids",
        "grammar",
        "last_position",
        "num_cached_tokens",
        "num_loaded_tokens",
        "num_planned_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_scored_tokens",
        "plain_until",
        "quiet_until",
        "rank",
        "request",
        "request_id",
        "status",
        "stop",
        "table",
        "token_ids",
    )

    def __init__(self, request: GenerateRequest, table: BlockTable, max_model_len: int, rank: Rank) -> None:
        """`rank`: lower is more important; no two requests have the same."""
        self.request = request
        self.request_id = request.request_id
        self.rank = rank
        self.num_prompt_tokens = len(request.prompt_token_ids)
        self.token_ids = [*request.prompt_token_ids, *request.resume_token_ids]  # prompt, then output; only appended to
        self.stop = StopRule(request, max_model_len)
        self.ending_ids = self.stop.ending_ids
        self.last_position = self.stop.max_total - 1  # of a token that may be sampled but is never computed
        self.table = table
        self.grammar: Any = None  # what the answer must match, a grammar.CompiledGrammar
        self.status = Status.WAITING
        self.num_planned_tokens = 0  # positions handed to a step, finished or not
        self.plain_until = 0  # positions below it need no thought: one token, in a block that is there, and not the last
        self.quiet_until = 0  # with fewer tokens than this, one more neither ends it by length nor follows a full block
        self.num_cached_tokens = 0  # prompt tokens found in the prefix cache at the first admission
        self.num_loaded_tokens = 0  # of those, the ones that came from beyond the pool
        self.num_preemptions = 0
        # prompt tokens whose log-probabilities have been sent: all of them before the first output token
        self.num_scored_tokens = self.num_prompt_tokens - 1 if request.resume_token_ids else request.num_scored_tokens

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_unscored_tokens(self) -> int:
        """Prompt tokens whose log-probabilities are wanted and not sent yet: the last so many of the prompt."""
        return 0 if self.request.params.prompt_logprobs is None else self.num_prompt_tokens - 1 - self.num_scored_tokens

    def __repr__(self) -> str:
        return f"RequestState({self.request_id!r}, {self.status.name}, {self.num_planned_tokens}/{self.num_tokens} tokens planned)"


def rank_of(state: RequestState) -> Rank:
    return state.rank
