"""A step as arrays: rows and their positions in, a `Batch` out. Here, and only here, rows become flat tokens.

Work in Python is per row, a slice of its tokens and one of its blocks; all else is NumPy over the whole step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.messages.step import RowStep
from octavo.ops.interface import Batch, concat_start
from octavo.worker.rows import Row


def build_batch(steps: Sequence[tuple[Row, RowStep]], block_size: int, num_groups: int = 1) -> Batch:
    """Return the step's arrays, rows in the order given; at least one row. A row's block ids are one of each layer group, again
    and again."""
    if num_groups == 1 and all(step.num_tokens == 1 for _, step in steps):
        return _one_token_each(steps, block_size)
    start = np.array([step.start for _, step in steps], np.int32)
    count = np.array([step.num_tokens for _, step in steps], np.int32)
    query_start = concat_start(count)
    row_of_token = np.repeat(np.arange(len(steps), dtype=np.int32), count)
    positions = np.arange(query_start[-1], dtype=np.int32) + (start - query_start[:-1])[row_of_token]
    width = max(row.block_ids.length for row, _ in steps) // num_groups
    block_table = np.zeros((len(steps), num_groups, width), np.int32)
    for table, (row, _) in zip(block_table, steps, strict=True):
        table[:, : row.block_ids.length // num_groups] = row.block_ids.values.reshape(-1, num_groups).T
    blocks = block_table[row_of_token, :, positions // block_size].astype(np.int64).T
    num_logits = np.array([step.num_logits for _, step in steps], np.int32)
    first_logits = np.repeat(query_start[1:] - num_logits, num_logits)
    logits_start = concat_start(num_logits)
    return Batch(
        token_ids=np.concatenate([row.token_ids.values[step.start : step.start + step.num_tokens] for row, step in steps]),
        positions=positions,
        query_start=query_start,
        context_len=start + count,
        block_table=block_table.reshape(len(steps), -1),
        slot_mapping=(blocks * block_size + positions % block_size).reshape(-1),
        sample_rows=first_logits + np.arange(logits_start[-1], dtype=np.int32) - np.repeat(logits_start[:-1], num_logits),
    )


def _one_token_each(steps: Sequence[tuple[Row, RowStep]], block_size: int) -> Batch:
    """Return the arrays of a step that only decodes, of one layer group: the same, with a third of NumPy's calls, each of which costs
    microseconds where a forward pass has just gone through the caches."""
    starts = [step.start for _, step in steps]
    slots = [int(row.block_ids.values[step.start // block_size]) * block_size + step.start % block_size for row, step in steps]
    block_table = np.zeros((len(steps), max(row.block_ids.length for row, _ in steps)), np.int32)
    for table, (row, _) in zip(block_table, steps, strict=True):
        table[: row.block_ids.length] = row.block_ids.values
    positions = np.array(starts, np.int32)
    return Batch(
        token_ids=np.array([row.token_ids.values[step.start] for row, step in steps], np.int32),
        positions=positions,
        query_start=np.arange(len(steps) + 1, dtype=np.int32),
        context_len=positions + 1,
        block_table=block_table,
        slot_mapping=np.array(slots, np.int64),
        sample_rows=np.array([number for number, (_, step) in enumerate(steps) if step.num_logits], np.int32),
    )
