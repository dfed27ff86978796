"""`HistoryWorker`: a worker whose model is a hash, with real paged memory.

The KV of a position is a hash of all tokens up to it, made from the KV of the position before it *as it lies in the row's
blocks*. So a wrong, stale or foreign block anywhere in a request's table changes every token after it. `solo_output` gives
the same tokens without any blocks, `solo_scores` the log-probabilities of a prompt: the KV before each token and its id.
"""

from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from zlib import crc32

from octavo.messages.step import SampledRow, ScoredRow, StepPlan, StepResult
from octavo.messages.wire import GenerateRequest, TokenLogprobs
from octavo.params import SamplingParams
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan


def next_kv(previous: int, token_id: int) -> int:
    return crc32(token_id.to_bytes(4, "little"), previous)


def history_kv(token_ids: list[int]) -> int:
    """Return the KV of the last of these tokens, the first of a request on."""
    kv = 0
    for token_id in token_ids:
        kv = next_kv(kv, token_id)
    return kv


def make_request(
    request_id: str,
    prompt: list[int],
    *,
    eos: tuple[int, ...] = (),
    salt: str = "",
    tenant: str = "",
    priority: int = 0,
    resume: tuple[int, ...] | list[int] = (),
    **params,
):
    return GenerateRequest(
        request_id=request_id,
        prompt_token_ids=prompt,
        params=SamplingParams(seed=0, **params),
        arrival_s=0.0,
        eos_token_ids=eos,
        cache_salt=salt,
        tenant=tenant,
        priority=priority,
        resume_token_ids=list(resume),
    )


def solo_output(request: GenerateRequest, *, vocab_size: int, max_model_len: int) -> tuple[list[int], str, int | None]:
    """Return (output token ids, finish_reason, stop_reason) of `request` alone on an endless machine."""
    params = request.params
    kv = history_kv(request.prompt_token_ids)
    output: list[int] = []
    while True:
        token_id = kv % vocab_size
        output.append(token_id)
        kv = next_kv(kv, token_id)
        in_context = len(request.prompt_token_ids) + len(output) < max_model_len
        if len(output) < params.min_tokens and in_context:
            continue
        if token_id in request.eos_token_ids and not params.ignore_eos:
            return output, "stop", None
        if token_id in params.stop_token_ids:
            return output, "stop", token_id
        if len(output) == params.max_tokens or not in_context:
            return output, "length", None


def solo_scores(prompt: list[int]) -> list[TokenLogprobs]:
    """Return what a request is told of its prompt's tokens, from the second on."""
    kv, scores = 0, []
    for token_id, following in pairwise(prompt):
        kv = next_kv(kv, token_id)
        scores.append(TokenLogprobs(float(kv), following, [], []))
    return scores


class InjectedFault(Exception):
    pass


@dataclass
class Row:
    token_ids: list[int]
    block_ids: list[int]


@dataclass
class HistoryWorker:
    """`faults`: request id -> how many more steps with it raise, after the KV was half written. `nan`: ids whose logits are NaN."""

    num_blocks: int
    block_size: int
    vocab_size: int
    faults: dict[str, int] = field(default_factory=dict)
    nan: set[str] = field(default_factory=set)
    rows: dict[str, Row] = field(default_factory=dict)
    plans: list[StepPlan] = field(default_factory=list)
    spans: tuple[AttentionSpan, ...] = (FULL_ATTENTION,)  # of the layer groups, each with KV of its own

    def __post_init__(self) -> None:
        self.memory = [-1] * (self.num_blocks * self.block_size)

    def read_block(self, block_id: int) -> bytes:
        return array("q", self.memory[block_id * self.block_size : (block_id + 1) * self.block_size]).tobytes()

    def execute(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        for load in plan.loads:
            self.memory[load.block_id * self.block_size : (load.block_id + 1) * self.block_size] = array("q", load.data)
        assert len(plan.rows) == len({row.request_id for row in plan.rows})
        for request_id in plan.released:
            self.rows.pop(request_id, None)
        for new in plan.new_rows:
            assert new.request_id not in self.rows
            self.rows[new.request_id] = Row(list(new.token_ids), list(new.block_ids))
        sampled, scored = [], []
        for step in plan.rows:
            row = self.rows[step.request_id]
            row.block_ids += step.new_block_ids
            for position in range(step.start, step.start + step.num_tokens):
                for group in range(len(self.spans)):
                    self._compute(row, group, position)
            if self.faults.get(step.request_id, 0) > 0:
                self.faults[step.request_id] -= 1
                raise InjectedFault(step.request_id)
            if step.num_scores:
                first = step.start + step.num_tokens - step.num_logits
                scores = [
                    TokenLogprobs(float(self.memory[self._slot(row, 0, position)]), row.token_ids[position + 1], [], [])
                    for position in range(first, first + step.num_scores)
                ]
                scored.append(ScoredRow(request_id=step.request_id, logprobs=scores, is_nan=step.request_id in self.nan))
            if not step.wants_sample:
                assert step.start + step.num_tokens < len(row.token_ids)
            elif step.request_id in self.nan:
                row.token_ids.append(0)  # what comes after it means nothing
                sampled.append(SampledRow(request_id=step.request_id, token_ids=[], is_nan=True))
            else:
                assert step.start + step.num_tokens == len(row.token_ids)
                last = {self.memory[self._slot(row, group, len(row.token_ids) - 1)] for group in range(len(self.spans))}
                assert len(last) == 1
                token_id = last.pop() % self.vocab_size
                row.token_ids.append(token_id)
                sampled.append(SampledRow(request_id=step.request_id, token_ids=[token_id]))
        return StepResult(step_id=plan.step_id, sampled=sampled, scored=scored, device_s=0.0)

    def _compute(self, row: Row, group: int, position: int) -> None:
        """Write a position's KV from that of the position before it, having looked at all that a window sees."""
        span = self.spans[group]
        first = position - 1 if span.size is None else span.first_seen(position)
        seen = [self.memory[self._slot(row, group, place)] for place in range(max(0, first), position)]
        assert min(seen, default=0) >= 0, "a position was read that nobody has written"
        for place, (before, kv) in enumerate(pairwise(seen), start=first + 1):
            assert kv == next_kv(before, row.token_ids[place]), "KV of other tokens lies in the window"
        previous = seen[-1] if seen else history_kv(row.token_ids[:position])
        self.memory[self._slot(row, group, position)] = next_kv(previous, row.token_ids[position])

    def _slot(self, row: Row, group: int, position: int) -> int:
        block_id = row.block_ids[position // self.block_size * len(self.spans) + group]
        assert 0 < block_id < self.num_blocks
        return block_id * self.block_size + position % self.block_size
