"""How far a pull has come, as a value, and watching a folder grow while another program fills it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

WATCH_INTERVAL_S = 0.2


class PullProgress(msgspec.Struct, frozen=True):
    """`stage`: waiting (for another pull of the same model) | downloading | unpacking. Bytes of that stage; total 0: unknown."""

    stage: str
    done_bytes: int = 0
    total_bytes: int = 0


OnProgress = Callable[[PullProgress], None]


@contextmanager
def watching(folder: Path, on_bytes: Callable[[int], None]) -> Iterator[None]:
    """Call `on_bytes` with the size of all files below `folder`, several times a second, from a thread of its own."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(WATCH_INTERVAL_S):
            on_bytes(folder_bytes(folder))

    thread = threading.Thread(target=watch, name="octavo-pull-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def folder_bytes(folder: Path) -> int:
    """Return the size of all files below `folder`; files that vanish meanwhile count nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total
