"""A model without weights: a token is a function of the request's seed and the token's position, whatever came before it."""

from __future__ import annotations

from octavo.messages.step import SampledRow, ScoredRow, StepPlan, StepResult
from octavo.messages.wire import TokenLogprobs


class FakeModel:
    """Remembers the seed of each open row, as a worker remembers its parameters."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._seeds: dict[str, int] = {}

    def token(self, seed: int, position: int) -> int:
        return (seed * 1_000_003 + position * 7_919) % self._vocab_size

    def execute(self, plan: StepPlan) -> StepResult:
        for request_id in plan.released:
            self._seeds.pop(request_id, None)
        for row in plan.new_rows:
            self._seeds[row.request_id] = row.params.seed or 0
        sampled = [
            SampledRow(request_id=row.request_id, token_ids=[self.token(self._seeds[row.request_id], row.start + row.num_tokens)])
            for row in plan.rows
            if row.wants_sample
        ]
        scored = [
            ScoredRow(request_id=row.request_id, logprobs=[TokenLogprobs(0.0, 1, [], [])] * row.num_scores)
            for row in plan.rows
            if row.num_scores
        ]
        return StepResult(step_id=plan.step_id, sampled=sampled, scored=scored, device_s=0.0)
