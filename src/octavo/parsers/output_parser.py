"""`OutputParser`: a model's text in, deltas out, while the text is still coming."""

from __future__ import annotations

from abc import ABC, abstractmethod

from octavo.parsers.deltas import Delta
from octavo.parsers.reader import Reader, Steps


class OutputParser(ABC):
    """Raises nothing, whatever the text; how it is cut into pieces changes nothing but the deltas' cuts.

    A kind of parser is how it reads a whole answer: its `_read`.
    """

    def __init__(self) -> None:
        self._reader = Reader()
        self._deltas: list[Delta] = []
        self._steps = self._read()  # begins with the first piece

    def push(self, text: str) -> list[Delta]:
        self._reader.feed(text)
        return self._go_on()

    def finish(self) -> list[Delta]:
        """Return what was held back: the answer has ended."""
        self._reader.end()
        return self._go_on()

    @abstractmethod
    def _read(self) -> Steps[None]:
        """Read an answer from `_reader` to its end, and emit what it says."""

    def _emit(self, delta: Delta) -> None:
        self._deltas.append(delta)

    def _go_on(self) -> list[Delta]:
        next(self._steps, None)
        deltas, self._deltas = self._deltas, []
        return deltas
