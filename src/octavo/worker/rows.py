"""The rows that the worker remembers: one per open request, its tokens, its block table, its sampling state.

A row is made whole from a NewRow and dropped when released; nothing of it outlives the request. The worker appends the
tokens that it samples itself, so a plan never sends them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from octavo.messages.step import NewRow, RowStep
from octavo.ops.interface import IntArray
from octavo.sampling.plan import GivenToken, SamplingRow

if TYPE_CHECKING:
    from octavo.grammar.matcher import Matcher


class IntList:
    """A growing int32 array: `values` is what is in it, a view that the next append may leave behind."""

    def __init__(self, values: Sequence[int]) -> None:
        self._buffer = np.empty(len(values) + 64, np.int32)
        self._buffer[: len(values)] = values
        self.length = len(values)

    @property
    def values(self) -> IntArray:
        return self._buffer[: self.length]

    def append(self, value: int) -> None:
        self._reserve(1)
        self._buffer[self.length] = value
        self.length += 1

    def extend(self, values: Sequence[int]) -> None:
        self._reserve(len(values))
        self._buffer[self.length : self.length + len(values)] = values
        self.length += len(values)

    def _reserve(self, count: int) -> None:
        if self.length + count > len(self._buffer):
            self._buffer = np.concatenate((self._buffer, np.empty(len(self._buffer) + count, np.int32)))


class Row:
    def __init__(self, opened: NewRow, vocab_size: int) -> None:
        self.request_id = opened.request_id
        self.token_ids = IntList(opened.token_ids)
        self.block_ids = IntList(opened.block_ids)
        self.matcher: Matcher | None = None
        if opened.grammar is not None:
            self.matcher = opened.grammar.open(opened.token_ids[opened.num_prompt_tokens :])
        self.sampling = SamplingRow(
            opened.params, opened.eos_token_ids, self.token_ids.values, opened.num_prompt_tokens, vocab_size, self.matcher
        )

    def tokens_to_score(self, step: RowStep) -> list[GivenToken]:
        """Return the prompt tokens that follow the positions which `step` scores."""
        first = step.start + step.num_tokens - step.num_logits
        count = self.sampling.params.prompt_logprobs or 0
        return [GivenToken(token_id, count) for token_id in self.token_ids.values[first + 1 : first + 1 + step.num_scores].tolist()]

    def append(self, token_id: int) -> None:
        """Take in the token that was sampled."""
        self.token_ids.append(token_id)
        self.sampling.append(token_id)
