"""How each row of a step chooses its token, as arrays: `build_sampling_batch` turns per-row state into a SamplingBatch.

A `SamplingRow` is one request's state: its parameters as numbers, and, only if it has penalties, the ids seen so far with
their counts. The state is made whole from the request's tokens, grows by `append`, and is thrown away with its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import InvalidRequest
from octavo.ops.interface import IntArray, SamplingBatch, concat_start
from octavo.params import SamplingParams

_NO_IDS = np.zeros(0, np.int32)


class SeenTokens:
    """The distinct ids of a prompt and its output, in order of appearance, and how often each stands in the output."""

    def __init__(self, prompt_token_ids: IntArray) -> None:
        distinct = dict.fromkeys(prompt_token_ids.tolist())
        self._index = {token: index for index, token in enumerate(distinct)}
        self._table = np.zeros((2, max(256, 2 * len(distinct))), np.int32)  # ids, counts; room to grow
        self._table[0, : len(distinct)] = list(distinct)

    def append(self, token_id: int) -> None:
        """Count one more output token."""
        index = self._index.setdefault(token_id, len(self._index))
        if index == self._table.shape[1]:
            self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=1)
        self._table[0, index] = token_id
        self._table[1, index] += 1

    @property
    def ids(self) -> IntArray:
        return self._table[0, : len(self._index)]

    @property
    def counts(self) -> IntArray:
        return self._table[1, : len(self._index)]


class SamplingRow:
    """One request's sampling state. `num_tokens` counts prompt and output: the position of the token that comes next."""

    def __init__(
        self, params: SamplingParams, eos_token_ids: Sequence[int], token_ids: IntArray, num_prompt_tokens: int, vocab_size: int
    ) -> None:
        """`token_ids` are prompt + output known so far. Raises InvalidRequest when there is no seed to draw by, or when
        logit_bias names an id that the model does not have."""
        if params.seed is None:
            raise InvalidRequest("a request must have a seed by the time it is sampled", param="seed")
        if beyond := [token for token in params.logit_bias if not 0 <= token < vocab_size]:
            raise InvalidRequest(f"logit_bias names token id {beyond[0]}; this model's ids are 0..{vocab_size - 1:,}", param="logit_bias")
        self.params = params
        self.num_tokens = len(token_ids)
        self._first_free = num_prompt_tokens + params.min_tokens  # from this position on, ending ids may be drawn
        ending = {*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids)}
        self._ending_ids = np.array(sorted(token for token in ending if token < vocab_size), np.int32)
        self.bias_ids = np.array(list(params.logit_bias), np.int32)
        self.bias_values = np.array(list(params.logit_bias.values()), np.float32)
        self.seen: SeenTokens | None = None
        if params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0:
            self.seen = SeenTokens(token_ids[:num_prompt_tokens])
            for token in token_ids[num_prompt_tokens:].tolist():
                self.seen.append(token)
        self.scalars = (
            params.temperature,
            params.top_k,
            params.top_p,
            params.min_p,
            params.repetition_penalty,
            params.presence_penalty,
            params.frequency_penalty,
            params.seed % (1 << 64),
            -1 if params.logprobs is None else params.logprobs,
        )

    @property
    def banned_ids(self) -> IntArray:
        return self._ending_ids if self.num_tokens < self._first_free else _NO_IDS

    def append(self, token_id: int) -> None:
        """Take note of the token that was drawn."""
        self.num_tokens += 1
        if self.seen is not None:
            self.seen.append(token_id)


_SCALAR_TYPES = (np.float32, np.int32, np.float32, np.float32, np.float32, np.float32, np.float32, np.uint64, np.int32)


def build_sampling_batch(rows: Sequence[SamplingRow]) -> SamplingBatch:
    """Return how these rows choose their next token, in their order; at least one row."""
    columns = [
        np.array(column, dtype) for column, dtype in zip(zip(*(row.scalars for row in rows), strict=True), _SCALAR_TYPES, strict=True)
    ]
    temperature, top_k, top_p, min_p, repetition, presence, frequency, seed, num_logprobs = columns
    banned_start, banned_ids = _concat([row.banned_ids for row in rows], np.int32)
    bias_start, bias_ids = _concat([row.bias_ids for row in rows], np.int32)
    seen_start, seen_ids = _concat([_NO_IDS if row.seen is None else row.seen.ids for row in rows], np.int32)
    return SamplingBatch(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        seed=seed,
        position=np.array([row.num_tokens for row in rows], np.uint64),
        num_logprobs=num_logprobs,
        banned_start=banned_start,
        banned_ids=banned_ids,
        bias_start=bias_start,
        bias_ids=bias_ids,
        bias_values=_concat([row.bias_values for row in rows], np.float32)[1],
        seen_start=seen_start,
        seen_ids=seen_ids,
        seen_counts=_concat([_NO_IDS if row.seen is None else row.seen.counts for row in rows], np.int32)[1],
    )


def _concat(parts: list[npt.NDArray[Any]], dtype: type[Any]) -> tuple[IntArray, npt.NDArray[Any]]:
    """Return the row starts and the joined values of lists that are mostly empty."""
    lengths = [len(part) for part in parts]
    if not any(lengths):
        return np.zeros(len(parts) + 1, np.int32), np.zeros(0, dtype)
    return concat_start(lengths), np.concatenate(parts)
