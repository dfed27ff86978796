"""A step as arrays: rows and their positions in, a `Batch` out. Here, and only here, rows become flat tokens.

Work in Python is per row, a few slices each; what is per token is NumPy over the whole step. The arrays live in buffers
that are made once; a Batch is valid until the next one is built.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.messages.step import RowStep
from octavo.ops.interface import Batch
from octavo.worker.rows import Row


class BatchBuilder:
    """Builds steps of up to `max_tokens` tokens and `max_rows` rows."""

    def __init__(self, block_size: int, max_tokens: int, max_rows: int) -> None:
        self._block_size = block_size
        self._token_ids = np.empty(max_tokens, np.int32)
        self._positions = np.empty(max_tokens, np.int32)
        self._row_of_token = np.empty(max_tokens, np.int32)
        self._query_start = np.zeros(max_rows + 1, np.int32)
        self._context_len = np.empty(max_rows, np.int32)
        self._ramp = np.arange(max_tokens, dtype=np.int32)

    def build(self, steps: Sequence[tuple[Row, RowStep]]) -> Batch:
        """Return the step's arrays, rows in the order given."""
        block_table = np.zeros((len(steps), max(row.block_ids.length for row, _ in steps)), np.int32)
        sample_rows = []
        at = 0
        for index, (row, step) in enumerate(steps):
            until = at + step.num_tokens
            stop = step.start + step.num_tokens
            self._token_ids[at:until] = row.token_ids.values[step.start : stop]
            self._positions[at:until] = self._ramp[: step.num_tokens]
            self._positions[at:until] += step.start
            self._row_of_token[at:until] = index
            self._query_start[index + 1] = until
            self._context_len[index] = stop
            block_table[index, : row.block_ids.length] = row.block_ids.values
            if step.wants_sample:
                sample_rows.append(until - 1)
            at = until
        positions = self._positions[:at]
        blocks = block_table[self._row_of_token[:at], positions // self._block_size].astype(np.int64)
        return Batch(
            token_ids=self._token_ids[:at],
            positions=positions,
            query_start=self._query_start[: len(steps) + 1],
            context_len=self._context_len[: len(steps)],
            block_table=block_table,
            slot_mapping=blocks * self._block_size + positions % self._block_size,
            sample_rows=np.array(sample_rows, np.int32),
        )
