"""Scores of given text rather than new text: logits at every position, and perplexity from them.

For evaluation and tests; it runs beside the engine, on KV memory of its own, one chunk at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.errors import InvalidRequest
from octavo.ops.interface import Batch
from octavo.specs.kv import KVSpec
from octavo.units import cdiv
from octavo.worker.runner import LoadedModel


class Scorer:
    """Scores chunks of up to `max_tokens` tokens, each from an empty context."""

    def __init__(self, loaded: LoadedModel, kv_spec: KVSpec, max_tokens: int) -> None:
        self._vocab_size = loaded.spec.vocab_size
        self._max_tokens = max_tokens
        self._block_size = kv_spec.block_size
        self._num_groups = len(kv_spec.spans)
        num_blocks = 1 + self._num_groups * cdiv(max_tokens, kv_spec.block_size)  # block 0 is the null block
        self._forward = loaded.backend.compile(loaded.model, loaded.backend.make_kv_cache(kv_spec, num_blocks), max_tokens, max_tokens)

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Return the logits after each token: [len(token_ids), V] float32, valid until the next call.

        Raises InvalidRequest when there are no tokens, too many, or one that the model does not have."""
        count = len(token_ids)
        if not 1 <= count <= self._max_tokens:
            raise InvalidRequest(f"{count:,} tokens; this scorer takes 1..{self._max_tokens:,} at a time")
        if not 0 <= min(token_ids) <= max(token_ids) < self._vocab_size:
            raise InvalidRequest(f"token ids {min(token_ids)}..{max(token_ids)}; this model's are 0..{self._vocab_size - 1:,}")
        positions = np.arange(count, dtype=np.int32)
        width = cdiv(count, self._block_size)  # blocks of each layer group
        first_slots = (1 + width * np.arange(self._num_groups, dtype=np.int64)) * self._block_size
        return self._forward(
            Batch(
                token_ids=np.array(token_ids, np.int32),
                positions=positions,
                query_start=np.array([0, count], np.int32),
                context_len=np.array([count], np.int32),
                block_table=np.arange(1, 1 + self._num_groups * width, dtype=np.int32)[None, :],
                slot_mapping=(first_slots[:, None] + positions).reshape(-1),
                sample_rows=positions,
            )
        )

    def perplexity(self, token_ids: Sequence[int], window: int) -> float:
        """Return e^(mean negative log-likelihood) over windows of `window` tokens that do not overlap; the first token of a
        window is given, the others are predicted from those before them in the window. Raises InvalidRequest as logits()
        does, and for text in which nothing is predicted."""
        if min(len(token_ids), window) < 2:
            raise InvalidRequest(f"{len(token_ids)} tokens in windows of {window}; perplexity needs at least two in a window")
        losses: list[npt.NDArray[np.float64]] = []
        for start in range(0, len(token_ids), window):
            chunk = token_ids[start : start + window]
            if len(chunk) > 1:
                losses.append(_negative_log_likelihood(self.logits(chunk)[:-1], chunk[1:]))
        return math.exp(float(np.mean(np.concatenate(losses))))


def _negative_log_likelihood(logits: npt.NDArray[np.float32], targets: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the loss of each row of logits [T, V] for its target: [T] float64, natural log."""
    loss = np.empty(len(targets), np.float64)
    for row, target in enumerate(targets):
        shifted = logits[row].astype(np.float64) - logits[row].max()
        loss[row] = np.log(np.sum(np.exp(shifted))) - shifted[target]
    return loss
