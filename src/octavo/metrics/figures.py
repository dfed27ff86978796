"""`Figures`: the values of metrics as a row of numbers, which hot paths add to without a lock, and which processes can share.

Each row has one writer; what is shown is the sum of all rows. A value is one aligned double, so that a reader in another
process sees it whole. Places are given out in the order of `Counter`, `Gauge` and `Histogram` being made, which is the same in
every process that makes its metrics from the same catalogue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import MutableSequence, Sequence
from typing import cast

ROW_VALUES = 4096
ROW_BYTES = 8 * ROW_VALUES

Row = MutableSequence[float]


def row_over(memory: bytearray | memoryview) -> Row:
    """Return writable memory as doubles."""
    return cast(Row, memoryview(memory).cast("d"))


class Figures:
    def __init__(self, rows: Sequence[Row] | None = None, own: int = 0) -> None:
        """`rows`: of all processes, this one's at `own`; by default one row that nobody else sees."""
        self.rows = rows or (row_over(bytearray(ROW_BYTES)),)
        self.own = self.rows[own]
        self._num_taken = 0

    def take(self, count: int) -> int:
        """Return the place of the first of `count` values that nobody else has."""
        at = self._num_taken
        self._num_taken += count
        if self._num_taken > ROW_VALUES:
            raise ValueError(f"the metrics have more than {ROW_VALUES:,} values")
        return at

    def total(self, at: int) -> float:
        return float(sum(row[at] for row in self.rows))


class Counter:
    """A number that grows."""

    def __init__(self, figures: Figures) -> None:
        self._figures, self._row = figures, figures.own
        self.at = figures.take(1)

    def inc(self, amount: float = 1) -> None:
        self._row[self.at] += amount

    @property
    def value(self) -> float:
        """Over all processes."""
        return self._figures.total(self.at)


class Gauge(Counter):
    """A number that can fall. Over all processes it is the sum, so that a fact of the engine is set by one of them only."""

    def set(self, value: float) -> None:
        self._row[self.at] = value

    @property
    def parts(self) -> list[float]:
        """The part of each process."""
        return [row[self.at] for row in self._figures.rows]

    def clear(self, row: int) -> float:
        """Make the part of a process that has ended 0; return what it was."""
        figures = self._figures.rows[row]
        was, figures[self.at] = figures[self.at], 0.0
        return was


class Histogram:
    """How many values were at most each bound, and their sum."""

    def __init__(self, figures: Figures, bounds: Sequence[float]) -> None:
        self.bounds = tuple(map(float, bounds))
        self._figures, self._row = figures, figures.own
        self._at = figures.take(len(self.bounds) + 2)  # a count for each bound and for what lies above, then the sum
        self._sum_at = self._at + len(self.bounds) + 1

    def observe(self, value: float) -> None:
        self._row[self._at + bisect_left(self.bounds, value)] += 1
        self._row[self._sum_at] += value

    @property
    def counts(self) -> list[float]:
        """Values in each bucket alone, over all processes; the last bucket has no bound."""
        return [self._figures.total(at) for at in range(self._at, self._sum_at)]

    @property
    def sum(self) -> float:
        return self._figures.total(self._sum_at)
