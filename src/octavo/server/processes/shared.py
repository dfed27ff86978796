"""What the API processes of one server see together: a block of memory with a row of figures for each, and a lock.

The block is a memory file that the supervisor makes and its children inherit; row 0 is the supervisor's. The lock is POSIX's, on
that file: it is let go when its holder ends, however that happens, and so no crash can hold up the others.
"""

from __future__ import annotations

import fcntl
import mmap
import os

from octavo.metrics.figures import ROW_BYTES, Figures, row_over


class Lock:
    """`with lock:` around a check and the claim that follows from it; no await inside. Not for threads of one process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN)


def create_block(num_processes: int) -> int:
    """Return the descriptor of a block with a row for the supervisor and one for each API process, all zero."""
    descriptor = os.memfd_create("octavo-figures")
    os.ftruncate(descriptor, (1 + num_processes) * ROW_BYTES)
    return descriptor


def open_figures(descriptor: int, own: int) -> Figures:
    """Return the figures in a block, of which this process writes row `own`."""
    memory = memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size))
    return Figures([row_over(memory[start : start + ROW_BYTES]) for start in range(0, len(memory), ROW_BYTES)], own)
