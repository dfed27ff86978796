"""`ReasoningParser`: what a model thinks before it answers, told apart from the answer by a pair of marks.

Only the beginning of an answer can be reasoning. Whether it begins inside, the prompt tells: many templates write the
opening mark themselves.
"""

from __future__ import annotations

import msgspec

from octavo.parsers.deltas import Content, Reasoning
from octavo.parsers.output_parser import OutputParser
from octavo.parsers.prose import Prose
from octavo.parsers.reader import Steps


class Thinking(msgspec.Struct, frozen=True):
    """The marks around reasoning. `begins_inside`: the model leaves out the opening one when the prompt does not end in either.
    `frame`: marks that may stand around the answer, and are no part of it."""

    open: str = "<think>"
    close: str = "</think>"
    begins_inside: bool = False
    frame: tuple[str, str] | None = None

    def is_inside(self, prompt_end: str) -> bool:
        """Return whether an answer to a prompt that ends so begins as reasoning."""
        end = prompt_end.rstrip()
        return end.endswith(self.open) or (self.begins_inside and not end.endswith(self.close))

    def is_left_open(self, text: str) -> bool:
        """Return whether a message that is to be continued ends as reasoning."""
        return text.rfind(self.open) > text.rfind(self.close)


class ReasoningParser(OutputParser):
    """`is_thinking`: reasoning has begun, and its end has not come."""

    def __init__(self, thinking: Thinking, *, inside: bool) -> None:
        super().__init__()
        self.is_thinking = inside
        self._thinking = thinking
        self._reasoning = Prose(lambda text: self._emit(Reasoning(text)))
        self._content = Prose(lambda text: self._emit(Content(text)))

    def _read(self) -> Steps[None]:
        reader = self._reader
        if (yield from reader.attempt(self._read_mark(self._thinking.open))):
            self.is_thinking = True
        if self.is_thinking:
            self._reasoning.trims_start = True
            yield from reader.until((self._thinking.close,), self._reasoning.write)
            self._reasoning.finish(trims_end=True)
            self._content.trims_start = True
            self.is_thinking = False
        frame = self._thinking.frame
        is_framed = frame is not None and (yield from reader.attempt(self._read_mark(frame[0])))
        if frame is not None and is_framed:
            self._content.trims_start = True
            yield from reader.until(frame[1:], self._content.write)
        yield from reader.until((), self._content.write)
        self._content.finish(trims_end=is_framed)

    def _read_mark(self, mark: str) -> Steps[None]:
        yield from self._reader.skip_space()
        yield from self._reader.expect(mark)
