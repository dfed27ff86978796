"""`CompiledGrammar`, and `Matcher`: one answer's way through one.

A matcher is a function of the grammar and of the answer's tokens so far, of nothing else: a request that lost its place gets a new
one, which reads the tokens again. What goes wrong inside ends in `error`, never in an exception, and stays.

Invariant: `allowed` is the mask of the token that comes next once `fill` has run; ids that end an answer are in it exactly when
the answer may end there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from llguidance import LLMatcher


class CompiledGrammar:
    """A grammar over a vocabulary of `vocab_size` ids, at its beginning. Never changes: any thread may open matchers."""

    def __init__(self, beginning: LLMatcher, vocab_size: int) -> None:
        self._beginning = beginning
        self._num_words = -(-vocab_size // 32)

    def open(self, token_ids: Sequence[int] = ()) -> Matcher:
        """Return a matcher that has read these tokens of the answer."""
        matcher = Matcher(self._beginning.deep_copy(), self._num_words)
        for token_id in token_ids:
            matcher.accept(token_id)
        return matcher


class Matcher:
    """`is_complete`: nothing can follow, the answer is over. `error`: why it cannot go on, None while it can."""

    def __init__(self, state: LLMatcher, num_words: int) -> None:
        self.allowed: npt.NDArray[np.int32] = np.zeros(num_words, np.int32)
        self.is_complete = False
        self.error: str | None = None
        self._state = state

    def fill(self) -> None:
        """Put the mask of the next token into `allowed`: bit i % 32 of word i // 32 for id i. Lets go of the interpreter lock."""
        if self.is_complete or self.error is not None:
            return
        self._state.unsafe_compute_mask_ptr(self.allowed.ctypes.data, self.allowed.nbytes)
        if self._state.is_error():
            self.error = "the grammar became too complex to go on with"

    def accept(self, token_id: int) -> None:
        """Take in the answer's next token."""
        if self.is_complete or self.error is not None:
            return
        if not self._state.consume_token(token_id):
            self.error = "no token that the grammar allows was left to draw"
        else:
            self.is_complete = self._state.is_stopped()
