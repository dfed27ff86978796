"""`ToolCallParser`: content and tool calls out of text; the format is a `Grammar`.

Text is content until one of the grammar's openers. If a call of one of the request's tools does not follow, the opener
was text too. A call is sure once its name and the beginning of its arguments are there; from then on it streams.
Blank space between content and calls is layout: the content's ends have none once there is a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from octavo.parsers.deltas import CallArguments, CallBegin, Content, Delta
from octavo.parsers.output_parser import OutputParser
from octavo.parsers.prose import Prose
from octavo.parsers.reader import NotACall, Reader, Steps

JsonSchema = Mapping[str, Any]


class ToolSet(msgspec.Struct, frozen=True):
    """What one request lets the model call: name -> schema of the parameters. `max_calls`: None for any number. `leads`: calls are what
    an answer begins with, from its first letter, or it has none."""

    schemas: Mapping[str, JsonSchema]
    new_call_id: Callable[[], str]
    max_calls: int | None = None
    leads: bool = False


class Grammar(Protocol):
    """How a model writes tool calls. Holds no state.

    `openers` begin calls, `closers` may follow them, once each. `is_bare`: calls may also begin the answer without an opener.
    `short_ids`: the model's template takes only ids of nine letters and digits.
    """

    @property
    def openers(self) -> tuple[str, ...]: ...
    @property
    def closers(self) -> tuple[str, ...]: ...
    @property
    def is_bare(self) -> bool: ...
    @property
    def short_ids(self) -> bool: ...
    def read(self, reader: Reader, calls: CallWriter, opener: str) -> Steps[None]:
        """Read calls, from behind `opener`. Runs as an attempt, which the first call commits. Raises NotACall."""
        ...


class CallWriter:
    """The calls of one answer, as deltas."""

    def __init__(self, tools: ToolSet, reader: Reader, emit: Callable[[Delta], None]) -> None:
        self.num_begun = 0
        self.is_full = False
        self._tools = tools
        self._reader = reader
        self._emit = emit

    def schema(self, name: str) -> JsonSchema:
        """Return the schema of a tool's parameters. Raises NotACall when the request has no such tool."""
        schema = self._tools.schemas.get(name)
        if schema is None:
            raise NotACall
        return schema

    def begin(self, name: str) -> None:
        """Begin a call of a tool of the request; the text read so far is its."""
        self._reader.commit()
        self._emit(CallBegin(self.num_begun, self._tools.new_call_id(), name))
        self.num_begun += 1

    def write(self, arguments: str) -> None:
        self._emit(CallArguments(self.num_begun - 1, arguments))

    def end(self) -> None:
        self.is_full = self._tools.max_calls is not None and self.num_begun >= self._tools.max_calls


class ToolCallParser(OutputParser):
    """Once `is_full`, the answer has as many calls as it may, and nothing more comes out."""

    def __init__(self, grammar: Grammar, tools: ToolSet) -> None:
        super().__init__()
        self._grammar = grammar
        self._leads = tools.leads
        self._calls = CallWriter(tools, self._reader, self._emit)
        self._content = Prose(lambda text: self._emit(Content(text)))

    @property
    def num_calls(self) -> int:
        return self._calls.num_begun

    @property
    def is_full(self) -> bool:
        return self._calls.is_full

    def _emit(self, delta: Delta) -> None:
        if not self.is_full:
            super()._emit(delta)

    def _read(self) -> Steps[None]:
        grammar = self._grammar
        owed: set[str] = set()  # closers that may still come
        words = grammar.openers + grammar.closers
        if self._leads or grammar.is_bare:
            yield from self._reader.attempt(self._read_leading() if self._leads else self._read_bare())
            if self.num_calls:
                owed = yield from self._read_closers()
            elif self._leads:
                words = ()
        while (word := (yield from self._reader.until(words, self._content.write))) is not None:
            before = self.num_calls
            if word in owed:
                owed.remove(word)
            elif word not in grammar.openers or not (yield from self._reader.attempt(grammar.read(self._reader, self._calls, word))):
                self._content.write(word)
            if self.num_calls > before:
                owed = yield from self._read_closers()
        self._content.finish(trims_end=self.num_calls > 0)

    def _read_closers(self) -> Steps[set[str]]:
        """Read the closers that follow a call, with the blank space before them; return those that may still come."""
        self._content.trims_start = True
        owed = set(self._grammar.closers)
        while (yield from self._reader.attempt(self._read_closer(owed))):
            pass
        return owed

    def _read_closer(self, owed: set[str]) -> Steps[None]:
        yield from self._reader.skip_space()
        for closer in self._grammar.closers:
            if closer in owed and (yield from self._reader.try_word(closer)):
                owed.remove(closer)
                return
        raise NotACall

    def _read_leading(self) -> Steps[None]:
        for opener in self._grammar.openers:
            if (yield from self._reader.try_word(opener)):
                yield from self._grammar.read(self._reader, self._calls, opener)
                return
        if not self._grammar.is_bare:
            raise NotACall
        yield from self._grammar.read(self._reader, self._calls, "")

    def _read_bare(self) -> Steps[None]:
        yield from self._reader.skip_space()
        yield from self._grammar.read(self._reader, self._calls, "")
