"""`CompiledGrammar`, and `Matcher`: one answer's way through one.

A matcher is a function of the grammar and of the answer's tokens so far, of nothing else: a request that lost its place gets a new
one, which reads the tokens again. What goes wrong inside ends in `error`, never in an exception, and stays. Who fills the masks may
end it too, when they take too long.

Invariant: `allowed` is the mask of the token that comes next once `fill` has run; ids that end an answer are in it exactly when
the answer may end there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from llguidance import LLMatcher

MAX_ITEMS = 10_000  # of the parser, for the mask of one token
MAX_OPEN_ITEMS = 2000  # of the parser, behind a token

SIMPLER = "ask for a simpler one: rules that match a text in one way only, words as one pattern and not letter by letter"
TOO_MUCH_WORK = f"the grammar is too complex: the mask of one token takes more than {MAX_ITEMS:,} items of the parser, the limit; {SIMPLER}"
TOO_WIDE = (
    f"the grammar is too complex: more than {MAX_OPEN_ITEMS:,} items of the parser are open behind one token, the limit "
    f"(a schema has four for each optional property of an object); {SIMPLER}"
)
DEAD_END = "the grammar lets nothing follow here, nor the answer end: no answer can match it this way"
CONFLICT = (
    "no token is left to draw: other fields of the request forbid all that its grammar allows here "
    "(allowed_token_ids, bad_words, logit_bias, min_tokens); leave them out, or change the grammar"
)
NOTHING_FOLLOWS = "NoExtension"  # the library's name for it, with which its error begins


class CompiledGrammar:
    """A grammar over a vocabulary of `vocab_size` ids, at its beginning. Never changes: any thread may open matchers. `mask_s`: the
    processor time that its first mask takes."""

    def __init__(self, beginning: LLMatcher, vocab_size: int, mask_s: float = 0.0) -> None:
        self._beginning = beginning
        self._num_words = -(-vocab_size // 32)
        self._mask_s = mask_s

    def open(self, token_ids: Sequence[int] = ()) -> Matcher:
        """Return a matcher that has read these tokens of the answer."""
        matcher = Matcher(self._beginning.deep_copy(), self._num_words, self._mask_s)
        for token_id in token_ids:
            matcher.accept(token_id)
        matcher.debt_s = 0.0
        return matcher


class Matcher:
    """`is_complete`: nothing can follow, the answer is over. `error`: why it cannot go on, None while it can.

    For who fills the masks, in processor time: `mask_s` is what the last one took, at first what the grammar's first one takes; `debt_s`
    is how far the answer is behind the pace of its tokens, to which taking in a token adds."""

    def __init__(self, state: LLMatcher, num_words: int, mask_s: float = 0.0) -> None:
        self.allowed: npt.NDArray[np.int32] = np.zeros(num_words, np.int32)
        self.is_complete = False
        self.error: str | None = None
        self.mask_s = mask_s
        self.debt_s = 0.0
        self._state = state

    def fill(self) -> None:
        """Put the mask of the next token into `allowed`: bit i % 32 of word i // 32 for id i. Lets go of the interpreter lock."""
        if self.is_complete or self.error is not None:
            return
        self._state.unsafe_compute_mask_ptr(self.allowed.ctypes.data, self.allowed.nbytes)
        if self._state.is_error():
            self.error = DEAD_END if self._state.get_error().startswith(NOTHING_FOLLOWS) else TOO_MUCH_WORK

    def accept(self, token_id: int) -> None:
        """Take in the answer's next token."""
        if self.is_complete or self.error is not None:
            return
        began = time.thread_time()
        if self._state.consume_token(token_id):
            self.is_complete = self._state.is_stopped()
        else:
            self.error = TOO_WIDE if self._is_allowed(token_id) else CONFLICT
        self.debt_s += time.thread_time() - began

    def end(self, error: str) -> None:
        """Let it go no further, for this reason."""
        if self.error is None:
            self.error = error

    def _is_allowed(self, token_id: int) -> bool:
        return bool(self.allowed[token_id // 32] >> (token_id % 32) & 1)
