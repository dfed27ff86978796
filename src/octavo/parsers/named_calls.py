"""Calls with the name outside the JSON: a mark, the name, a mark, the arguments, a mark."""

from __future__ import annotations

import msgspec

from octavo.parsers.calls import CallWriter
from octavo.parsers.json_calls import read_call_array, stream_arguments
from octavo.parsers.reader import NotACall, Reader, Steps

_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


class NamedCalls(msgspec.Struct, frozen=True):
    """[`section`] `call` `before_name` NAME `after_name` {...} `after_arguments`.

    `numbers_calls`: the name is written with the call's number, NAME:0.
    """

    section: str
    call: str
    after_name: str
    closers: tuple[str, ...]
    before_name: str = ""
    after_arguments: str = ""
    numbers_calls: bool = False
    is_bare: bool = False
    short_ids: bool = False

    @property
    def openers(self) -> tuple[str, ...]:
        return (self.section, self.call)

    def read(self, reader: Reader, calls: CallWriter, opener: str) -> Steps[None]:
        if opener == self.section:
            yield from reader.skip_space()
            yield from reader.expect(self.call)
        yield from reader.expect(self.before_name)
        name = yield from reader.while_in(_NAME.__contains__)
        calls.schema(name)
        if self.numbers_calls:
            yield from reader.expect(":")
            yield from reader.while_in(str.isdecimal)
        yield from reader.expect(self.after_name)
        yield from reader.skip_space()
        yield from stream_arguments(reader, calls, name)
        yield from reader.attempt(self._read_end(reader))

    def _read_end(self, reader: Reader) -> Steps[None]:
        yield from reader.skip_space()
        yield from reader.expect(self.after_arguments)


class MistralCalls(msgspec.Struct, frozen=True):
    """[TOOL_CALLS] [{"name": ..., "arguments": {...}}], and since 2025 [TOOL_CALLS]NAME[ARGS]{...}, the last mark often left out."""

    openers: tuple[str, ...] = ("[TOOL_CALLS]",)
    closers: tuple[str, ...] = ()
    is_bare: bool = False
    short_ids: bool = True

    def read(self, reader: Reader, calls: CallWriter, opener: str) -> Steps[None]:
        yield from reader.skip_space()
        if (yield from reader.peek()) == "[":
            yield from read_call_array(reader, calls)
            return
        name = yield from reader.while_in(_NAME.__contains__)
        calls.schema(name)
        if (yield from reader.try_word("[CALL_ID]")):
            yield from reader.while_in(str.isalnum)
        yield from reader.try_word("[ARGS]")
        yield from reader.skip_space()
        if (yield from reader.peek()) != "{":
            raise NotACall
        yield from stream_arguments(reader, calls, name)
