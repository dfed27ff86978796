"""The bar that `LLM` shows on a terminal while it answers; nothing elsewhere."""

from __future__ import annotations

import sys
import time


class Progress:
    """Use it as a context; `advance` for each answer."""

    def __init__(self, total: int, *, enabled: bool) -> None:
        self._total = total
        self._tokens = 0
        self._start_s = time.monotonic()
        self._bar = None
        if enabled and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("answers"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total, rate="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, num_tokens: int) -> None:
        """One more answer has ended, with so many tokens."""
        self._tokens += num_tokens
        if self._bar is not None:
            rate = self._tokens / max(1e-9, time.monotonic() - self._start_s)
            self._bar.update(self._task, advance=1, rate=f"{rate:,.0f} tok/s")
