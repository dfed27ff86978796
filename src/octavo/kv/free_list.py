"""`FreeList`: the ids of free blocks in the order in which they will be taken.

A ring through two arrays, so that every operation is O(1) and a pool of a million blocks costs 8 MB and no objects.
Id 0, the null block, is never free: it anchors the ring (its successor is the front, its predecessor the tail).
It does not know what a block holds, nor whether an id is in it: the pool's reference counts say that.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator


class FreeList:
    def __init__(self, num_blocks: int) -> None:
        """Hold ids 1 .. num_blocks - 1, lowest in front."""
        self._next = array("i", range(1, num_blocks + 1))
        self._next[-1] = 0
        self._previous = array("i", range(-1, num_blocks - 1))
        self._previous[0] = num_blocks - 1
        self._length = num_blocks - 1

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        """Yield the ids from the front."""
        block_id = self._next[0]
        while block_id:
            yield block_id
            block_id = self._next[block_id]

    def push_front(self, block_id: int) -> None:
        self._insert(block_id, after=0)

    def push_tail(self, block_id: int) -> None:
        self._insert(block_id, after=self._previous[0])

    def pop_front(self) -> int:
        """Remove and return the front id; raises IndexError when the list is empty."""
        if not self._length:
            raise IndexError("no free block")
        block_id = self._next[0]
        self.remove(block_id)
        return block_id

    def remove(self, block_id: int) -> None:
        """Take out an id that is in the list, wherever it stands."""
        previous, following = self._previous[block_id], self._next[block_id]
        self._next[previous] = following
        self._previous[following] = previous
        self._length -= 1

    def _insert(self, block_id: int, after: int) -> None:
        following = self._next[after]
        self._next[after] = self._previous[following] = block_id
        self._previous[block_id], self._next[block_id] = after, following
        self._length += 1
