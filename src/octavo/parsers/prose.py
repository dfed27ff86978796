"""`Prose`: text on its way out, without the blank space that only separates it from something else."""

from __future__ import annotations

from collections.abc import Callable


class Prose:
    """Blank space waits until text follows it, so that the end may be trimmed; at the beginning it goes if `trims_start`."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._blank = ""
        self._begun = False
        self.trims_start = False

    def write(self, text: str) -> None:
        solid = text.rstrip()
        if not solid:
            self._blank += text
            return
        shown = self._blank + solid
        if self.trims_start and not self._begun:
            shown = shown.lstrip()
        self._begun = True
        self._blank = text[len(solid) :]
        self._emit(shown)

    def finish(self, *, trims_end: bool) -> None:
        if self._blank and not trims_end:
            self._emit(self._blank)
        self._blank = ""
