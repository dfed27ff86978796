"""`Groups`: the layer groups of a model, as far as block tables need them: which positions each still sees.

Layers of one group have their KV in the same blocks. All groups take blocks of the same size in bytes from one pool, so what
one leaves another can use. A run is block_size consecutive positions: one block for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octavo.kv.block import NULL_BLOCK
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan, blocks_for_request, longest_request


class Groups:
    def __init__(self, block_size: int, spans: Sequence[AttentionSpan] = (FULL_ATTENTION,), max_step_tokens: int = 0) -> None:
        """`spans`: one a group. `max_step_tokens`: positions that may be under way at once for one request."""
        self._block_size = block_size
        self._spans = tuple(spans)
        self._max_step_tokens = max_step_tokens
        self.count = len(self._spans)
        self.forget_positions = any(span.size is not None for span in self._spans)

    def first_seen(self, num_computed_tokens: int) -> list[int]:
        """Return, by group, the first position that the token after `num_computed_tokens` sees; later ones see none before it."""
        return [span.first_seen(num_computed_tokens) for span in self._spans]

    def blocks_for(self, num_tokens: int) -> int:
        """Return the most blocks that a request of `num_tokens` tokens holds at once."""
        return blocks_for_request(self._spans, self._block_size, num_tokens, self._max_step_tokens)

    def most_tokens(self, num_blocks: int) -> int:
        """Return the longest request that `num_blocks` blocks can hold."""
        return longest_request(self._spans, self._block_size, num_blocks, self._max_step_tokens)

    def longest_hit(self, limit: int, find: Callable[[int, int], int]) -> tuple[int, list[int]]:
        """Return (runs, block ids as in BlockTable) of the longest prefix of at most `limit` runs whose next token would find,
        in every group, all that it sees. `find(group, run)` returns a block that holds it, or the null block."""
        columns: list[list[int]] = [[] for _ in self._spans]
        length = limit
        for group, span in enumerate(self._spans):
            if span.size is None:  # all of it is seen: the first miss ends the prefix
                columns[group] = _leading(group, length, find)
                length = len(columns[group])
        windows = [group for group, span in enumerate(self._spans) if span.size is not None]
        for group in windows:
            columns[group] = [find(group, run) for run in range(length)]
        while length and (missing := max((self._last_missing(columns[group], group, length) for group in windows), default=-1)) >= 0:
            length = missing  # every shorter prefix that reaches past the missing run would need it as well
        block_ids = [NULL_BLOCK] * (length * self.count)
        for group, first in enumerate(self.first_seen(length * self._block_size)):
            begin = first // self._block_size
            block_ids[begin * self.count + group :: self.count] = columns[group][begin:length]
        return length, block_ids

    def _last_missing(self, column: Sequence[int], group: int, length: int) -> int:
        """Return the last run that the token after `length` runs sees and that `column` lacks; -1 if it lacks none."""
        begin = self._spans[group].first_seen(length * self._block_size) // self._block_size
        return next((run for run in range(length - 1, begin - 1, -1) if column[run] == NULL_BLOCK), -1)


def _leading(group: int, limit: int, find: Callable[[int, int], int]) -> list[int]:
    found: list[int] = []
    while len(found) < limit and (block_id := find(group, len(found))) != NULL_BLOCK:
        found.append(block_id)
    return found
