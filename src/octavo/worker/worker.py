"""The worker: owns the device, turns a `StepPlan` into token ids.

Plans come one after another, each perhaps made before the one ahead was run: what a row samples, the worker appends itself.
execute() checks the whole plan before it changes anything, so a refused plan leaves the worker as it was. Then: close the
released rows, open the new ones, fill blocks that come from beyond the pool, extend block tables, one forward pass, one
sampling pass, append what was drawn. When the device fails half-way, rows may be open or extended; releasing a row and
opening it anew in the next plan mends that, and releasing one that is not open is no error.

What it trusts: nothing that could reach outside memory. Token ids are checked against the vocabulary, block ids against the
pool, positions against what the row knows, sizes against what was compiled.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo.errors import EngineError
from octavo.messages.step import NewRow, RowStep, SampledRow, ScoredRow, StepPlan, StepResult
from octavo.messages.wire import TokenLogprobs
from octavo.ops.interface import Sampled
from octavo.sampling.plan import GivenToken, SamplingBatches, SamplingRow
from octavo.specs.kv import KVSpec
from octavo.worker.batch import build_batch
from octavo.worker.rows import Row
from octavo.worker.runner import LoadedModel

if TYPE_CHECKING:
    from octavo.worker.masks import MaskFiller


class Worker:
    """Runs steps of up to `max_tokens` tokens, `max_rows` rows and as many rows of logits over a pool of `num_blocks` blocks."""

    def __init__(self, loaded: LoadedModel, kv_spec: KVSpec, num_blocks: int, max_tokens: int, max_rows: int, enforce_eager: bool) -> None:
        self._backend = loaded.backend
        self._vocab_size = loaded.spec.vocab_size
        self._num_blocks = num_blocks
        self._block_size = kv_spec.block_size
        self._num_groups = len(kv_spec.spans)
        self._may_lack_blocks = any(span.size is not None for span in kv_spec.spans)  # where nothing is seen any more
        self._max_tokens = max_tokens
        self._max_rows = max_rows
        self._bytes_per_block = kv_spec.bytes_per_block
        self._kv = loaded.backend.make_kv_cache(kv_spec, num_blocks)
        if enforce_eager:
            self._forward = loaded.backend.eager(loaded.model, self._kv)
        else:
            self._forward = loaded.backend.compile(loaded.model, self._kv, max_tokens, max_rows)
        self._rows: dict[str, Row] = {}
        self._sampling_batches = SamplingBatches()
        self._masks: MaskFiller | None = None  # while some open row's answer must match a grammar

    def execute(self, plan: StepPlan) -> StepResult:
        """Run one step. Raises EngineError, with nothing changed, when the plan cannot be run, and InvalidRequest likewise
        when a new row's parameters do not fit the model."""
        opened = self._check(plan)
        for request_id in plan.released:
            self._rows.pop(request_id, None)
        self._rows.update(opened)
        if opened or plan.released:
            self._masks = _filler(self._masks) if any(row.matcher is not None for row in self._rows.values()) else None
        for load in plan.loads:
            self._kv.write_block(load.block_id, load.data)
        steps = [(self._rows[step.request_id], step) for step in plan.rows]
        for row, step in steps:
            if step.new_block_ids:
                row.block_ids.extend(step.new_block_ids)
        started = time.perf_counter()
        sampled, scored = self._run(steps) if steps else ([], [])
        return StepResult(step_id=plan.step_id, sampled=sampled, scored=scored, device_s=time.perf_counter() - started)

    def read_block(self, block_id: int) -> bytes:
        """Return what a block of the pool holds. While a step runs, only a block that no row of it writes to."""
        return self._kv.read_block(block_id)

    def _run(self, steps: Sequence[tuple[Row, RowStep]]) -> tuple[list[SampledRow], list[ScoredRow]]:
        filling = self._masks.start([row.matcher for row, step in steps if step.wants_sample]) if self._masks is not None else None
        logits = self._forward(build_batch(steps, self._block_size, self._num_groups))
        wanted: list[SamplingRow | GivenToken] = []
        for row, step in steps:
            if step.num_scores:
                wanted += row.tokens_to_score(step)
            if step.wants_sample:
                wanted.append(row.sampling)
        if not wanted:
            return [], []
        if filling is not None:
            filling.result()
        drawn = self._backend.sample(logits, self._sampling_batches.build(wanted))
        token_ids, is_nan = drawn.token_ids.tolist(), drawn.is_nan.tolist()
        sampled, scored, index = [], [], 0
        for row, step in steps:
            if step.num_scores:
                scored.append(_scores(row, range(index, index + step.num_scores), drawn))
                index += step.num_scores
            if step.wants_sample:
                sampled.append(_take(row, index, token_ids[index], is_nan[index], drawn))
                index += 1
        return sampled, scored

    def _check(self, plan: StepPlan) -> dict[str, Row]:
        """Return the rows that the plan opens; raises when any part of it cannot be run."""
        if plan.num_tokens > self._max_tokens or len(plan.rows) > self._max_rows:
            raise EngineError(
                f"a step of {plan.num_tokens:,} tokens in {len(plan.rows):,} rows; "
                f"this worker takes {self._max_tokens:,} and {self._max_rows:,}"
            )
        if plan.num_logits > self._max_rows:
            raise EngineError(f"a step wants logits at {plan.num_logits:,} positions; this worker computes {self._max_rows:,}")
        for load in plan.loads:
            if not 0 < load.block_id < self._num_blocks or len(load.data) != self._bytes_per_block:
                raise EngineError(
                    f"block {load.block_id} is to hold {len(load.data):,} bytes; blocks 1..{self._num_blocks - 1:,} hold others"
                )
        released = set(plan.released)
        opened: dict[str, Row] = {}
        for new in plan.new_rows:
            if new.request_id in opened or (new.request_id in self._rows and new.request_id not in released):
                raise EngineError(f"row {new.request_id} is opened twice")
            self._check_ids(new)
            opened[new.request_id] = Row(new, self._vocab_size)
        stepped: set[str] = set()
        for step in plan.rows:
            row = opened.get(step.request_id) or self._rows.get(step.request_id)
            if row is None or step.request_id in stepped or (step.request_id in released and step.request_id not in opened):
                raise EngineError(f"row {step.request_id} has a step but is not open, or has two")
            stepped.add(step.request_id)
            self._check_step(step, row)
        return opened

    def _check_ids(self, new: NewRow) -> None:
        if not new.token_ids or not 0 < new.num_prompt_tokens <= len(new.token_ids):
            raise EngineError(f"row {new.request_id}: {new.num_prompt_tokens} prompt tokens of {len(new.token_ids)}")
        for token_id in (min(new.token_ids), max(new.token_ids)):
            if not 0 <= token_id < self._vocab_size:
                raise EngineError(f"row {new.request_id}: token id {token_id}; this model's ids are 0..{self._vocab_size - 1:,}")
        self._check_blocks(new.request_id, new.block_ids)

    def _check_blocks(self, request_id: str, block_ids: list[int]) -> None:
        first = 0 if self._may_lack_blocks else 1
        if block_ids and not first <= min(block_ids) <= max(block_ids) < self._num_blocks:
            raise EngineError(f"row {request_id}: block ids {min(block_ids)}..{max(block_ids)}; the pool has 1..{self._num_blocks - 1:,}")
        if len(block_ids) % self._num_groups:
            raise EngineError(f"row {request_id}: {len(block_ids)} blocks for {self._num_groups} layer groups")

    def _check_step(self, step: RowStep, row: Row) -> None:
        self._check_blocks(step.request_id, step.new_block_ids)
        until = step.start + step.num_tokens
        if step.num_tokens < 1 or step.start < 0 or until > row.token_ids.length:
            raise EngineError(f"row {step.request_id}: positions {step.start}..{until - 1} of {row.token_ids.length} known tokens")
        if step.wants_sample and until != row.token_ids.length:
            raise EngineError(f"row {step.request_id} wants a sample at position {until - 1} of {row.token_ids.length} known tokens")
        if step.num_scores and (step.num_logits > step.num_tokens or (until == row.token_ids.length and not step.wants_sample)):
            raise EngineError(f"row {step.request_id} wants {step.num_scores} scores of a step whose next tokens are not all known")
        num_blocks = (row.block_ids.length + len(step.new_block_ids)) // self._num_groups
        if until > num_blocks * self._block_size:
            raise EngineError(f"row {step.request_id}: {num_blocks} blocks of {self._block_size} do not hold {until:,} positions")


def _filler(made: MaskFiller | None) -> MaskFiller:
    from octavo.worker.masks import MaskFiller  # most workers never fill a mask

    return made or MaskFiller()


def _take(row: Row, index: int, token_id: int, is_nan: bool, drawn: Sampled) -> SampledRow:
    """Append what was drawn for sampled row `index` and return it. A row of NaN gets some token too: its next step may have
    been planned already, and must not break that of the others."""
    row.append(token_id)
    if is_nan:
        return SampledRow(request_id=row.request_id, token_ids=[], is_nan=True)
    count, matcher = row.sampling.params.logprobs, row.matcher
    logprobs = None if count is None else [_logprobs(index, count, drawn)]
    if matcher is None:
        return SampledRow(request_id=row.request_id, token_ids=[token_id], logprobs=logprobs)
    if matcher.error is not None:
        return SampledRow(request_id=row.request_id, token_ids=[], grammar_error=matcher.error)
    return SampledRow(request_id=row.request_id, token_ids=[token_id], logprobs=logprobs, is_complete=matcher.is_complete)


def _scores(row: Row, indices: range, drawn: Sampled) -> ScoredRow:
    if drawn.is_nan[indices.start : indices.stop].any():
        return ScoredRow(request_id=row.request_id, logprobs=[], is_nan=True)
    count = row.sampling.params.prompt_logprobs or 0
    return ScoredRow(request_id=row.request_id, logprobs=[_logprobs(index, count, drawn) for index in indices])


def _logprobs(index: int, count: int, drawn: Sampled) -> TokenLogprobs:
    """Return those of sampled row `index`, with the `count` most likely tokens or as many as there are."""
    top_ids = [token_id for token_id in drawn.top_ids[index, :count].tolist() if token_id >= 0]
    return TokenLogprobs(float(drawn.logprob[index]), int(drawn.rank[index]), top_ids, drawn.top_logprobs[index, : len(top_ids)].tolist())
