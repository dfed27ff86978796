"""The memory of a server: of a process and all below it, pages that they share counted once (PSS).

KV memory is the largest anonymous mapping of any of them: engines take it in one piece, of which the pages that were touched
count. A server whose KV memory comes in several pieces shows more memory beyond it than there is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Memory:
    pss_mib: float
    kv_mib: float  # of it the largest mapping
    peak_rss_mib: float  # the sum of each process' highest


def memory_of(root: int) -> Memory:
    """Return the memory of `root` and all below it."""
    pss = peak = largest = kv = 0
    for process in _tree(root):
        try:
            status, maps = (process / "status").read_text(), (process / "smaps").read_text()
        except OSError:
            continue  # ended meanwhile
        peak += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
        for is_anonymous, size, present in _mappings(maps):
            pss += present
            if is_anonymous and size > largest:
                largest, kv = size, present
    return Memory(pss / 1024, kv / 1024, peak / 1024)


def _tree(root: int) -> Iterator[Path]:
    children: dict[int, list[int]] = defaultdict(list)
    for entry in PROC.glob("[0-9]*/stat"):
        try:
            children[int(entry.read_text().rpartition(")")[2].split()[1])].append(int(entry.parent.name))
        except OSError:
            continue
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        yield PROC / str(pid)


def _mappings(smaps: str) -> Iterator[tuple[bool, int, int]]:
    """Yield (has no file behind it, KiB of its addresses, KiB of its share of memory) of each mapping."""
    is_anonymous, size = False, 0
    for line in smaps.splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            is_anonymous = len(words) == 5
        elif words[0] == "Size:":
            size = int(words[1])
        elif words[0] == "Pss:":
            yield is_anonymous, size, int(words[1])
