"""`PoolingWorker`: whole texts in, a vector or scores each out. Owns the device for models that do not generate.

A text's result depends on that text alone, bit for bit: the encoder's rows do (ops/interface.py), and pooling adds a text's
own tokens in their order. Nothing is kept between steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.errors import EngineError
from octavo.messages.wire import PoolRequest
from octavo.ops.interface import Batch, IntArray, concat_start
from octavo.specs.model import EncoderSpec
from octavo.worker.runner import LoadedModel

FloatArray = npt.NDArray[np.float32]


class PoolingWorker:
    """Runs steps of up to `max_tokens` tokens."""

    def __init__(self, loaded: LoadedModel, spec: EncoderSpec, max_tokens: int, enforce_eager: bool) -> None:
        self._spec = spec
        self._max_tokens = max_tokens
        kv = loaded.backend.make_kv_cache(spec.kv_spec(), 1)
        if enforce_eager:
            self._forward = loaded.backend.eager(loaded.model, kv)
        else:
            self._forward = loaded.backend.compile(loaded.model, kv, max_tokens, max_tokens)

    def execute(self, requests: Sequence[PoolRequest]) -> list[FloatArray]:
        """Return each request's answer: embed [D], token_embed [T, D], classify [labels], float32.

        Raises EngineError when the step is too large or holds what the model does not have."""
        self._check(requests)
        start = concat_start([len(request.prompt_token_ids) for request in requests])
        sampled = [self._sampled(request, *ends) for request, *ends in zip(requests, start.tolist(), start[1:].tolist(), strict=False)]
        outputs = self._forward(_batch(requests, start, np.concatenate(sampled)))
        cuts = np.cumsum([len(rows) for rows in sampled])[:-1]
        return [self._pool(request, rows) for request, rows in zip(requests, np.split(outputs, cuts), strict=True)]

    def _sampled(self, request: PoolRequest, begin: int, end: int) -> IntArray:
        """Return the tokens whose vectors are asked of the model."""
        if request.task == "token_embed" or (request.task == "embed" and self._spec.pooling == "mean"):
            return np.arange(begin, end, dtype=np.int32)
        is_last = request.task == "embed" and self._spec.pooling == "last"
        return np.array([end - 1 if is_last else begin], np.int32)

    def _pool(self, request: PoolRequest, rows: FloatArray) -> FloatArray:
        """Return the answer from the model's outputs [sampled tokens, width]; a fresh array."""
        if request.task == "classify":
            scores: FloatArray = rows[0].astype(np.float32)
            return probabilities(scores, is_multi_label=self._spec.is_multi_label) if request.activate else scores
        vectors = rows if request.task == "token_embed" else rows.mean(axis=0, keepdims=True, dtype=np.float64).astype(np.float32)
        if request.activate and self._spec.normalize:
            length = np.sqrt(np.sum(np.square(vectors, dtype=np.float64), axis=1, keepdims=True))
            vectors = (vectors / np.maximum(length, 1e-12)).astype(np.float32)
        return vectors.copy() if request.task == "token_embed" else vectors[0]

    def _check(self, requests: Sequence[PoolRequest]) -> None:
        num_tokens = sum(len(request.prompt_token_ids) for request in requests)
        if not requests or num_tokens > self._max_tokens:
            raise EngineError(f"a step of {num_tokens:,} tokens of {len(requests):,} texts; this worker takes 1..{self._max_tokens:,}")
        for request in requests:
            ids = request.prompt_token_ids
            if not ids or not 0 <= min(ids) <= max(ids) < self._spec.vocab_size or len(ids) > self._spec.max_position:
                raise EngineError(f"text {request.request_id} is empty, too long, or holds a token id that the model does not have")
            if (request.task == "classify") != bool(self._spec.labels):
                raise EngineError(f"text {request.request_id} asks for {request.task}, which this model does not do")


def probabilities(scores: FloatArray, *, is_multi_label: bool) -> FloatArray:
    """Return scores [labels] as probabilities: a sigmoid each where labels stand for themselves or there is one, else a softmax."""
    wide = scores.astype(np.float64)
    if is_multi_label or len(wide) == 1:
        return (0.5 * (1 + np.tanh(0.5 * wide))).astype(np.float32)
    weights = np.exp(wide - wide.max())
    result: FloatArray = (weights / weights.sum()).astype(np.float32)
    return result


def _batch(requests: Sequence[PoolRequest], start: IntArray, sample_rows: IntArray) -> Batch:
    lengths = np.diff(start).astype(np.int32)
    positions = np.arange(start[-1], dtype=np.int32) - np.repeat(start[:-1], lengths)
    second_start = np.array([request.second_start for request in requests], np.int32)
    return Batch(
        token_ids=np.concatenate([np.array(request.prompt_token_ids, np.int32) for request in requests]),
        positions=positions,
        query_start=start,
        context_len=lengths,
        block_table=np.zeros((len(requests), 0), np.int32),
        slot_mapping=np.zeros(len(positions), np.int64),
        sample_rows=sample_rows,
        token_types=(positions >= np.repeat(second_start, lengths)).astype(np.int32),
    )
