"""Calls written as JSON objects, one by one or in an array: {"name": "f", "arguments": {...}}."""

from __future__ import annotations

import json

import msgspec

from octavo.parsers.calls import CallWriter
from octavo.parsers.reader import NotACall, Reader, Steps

_ARGUMENTS = ("arguments", "parameters")
_LABELS = ("id", "type")  # what models may also write in a call, and nobody needs
_SCALAR = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzE")


class JsonCalls(msgspec.Struct, frozen=True):
    """`separators` may stand between objects that are in no array. `fences`: marks that may stand before a bare call. `key`: under which
    the model writes arguments. `is_exact`: a bare call is its name, then its arguments under `key`, an object, and nothing else."""

    openers: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()
    is_bare: bool = False
    short_ids: bool = False
    separators: str = ""
    fences: tuple[str, ...] = ()
    key: str = "arguments"
    is_exact: bool = False

    def read(self, reader: Reader, calls: CallWriter, opener: str) -> Steps[None]:
        if not opener and self.is_exact:
            yield from self._read_exact(reader, calls)
            return
        if not opener:
            yield from self._skip_fence(reader)
        yield from reader.skip_space()
        if (yield from reader.peek()) == "[":
            yield from read_call_array(reader, calls)
            return
        yield from read_call_object(reader, calls)
        while (yield from reader.attempt(self._read_next(reader, calls))):
            pass

    def _read_exact(self, reader: Reader, calls: CallWriter) -> Steps[None]:
        for word in ("{", '"name"', ":"):
            yield from reader.expect(word)
            yield from reader.skip_space()
        name = yield from reader.json_string()
        calls.schema(name)
        for word in (",", f'"{self.key}"', ":"):
            yield from reader.skip_space()
            yield from reader.expect(word)
        yield from reader.skip_space()
        if (yield from reader.peek()) != "{":
            raise NotACall
        yield from stream_arguments(reader, calls, name)
        yield from reader.attempt(_read_rest(reader))

    def _skip_fence(self, reader: Reader) -> Steps[None]:
        for fence in self.fences:
            if (yield from reader.try_word(fence)):
                return

    def _read_next(self, reader: Reader, calls: CallWriter) -> Steps[None]:
        yield from reader.skip_space()
        yield from reader.while_in(self.separators.__contains__)
        yield from reader.skip_space()
        yield from read_call_object(reader, calls)


def read_call_array(reader: Reader, calls: CallWriter) -> Steps[None]:
    """Read [{...}, {...}], of which the first must be a call. Raises NotACall."""
    yield from reader.expect("[")
    yield from reader.skip_space()
    yield from read_call_object(reader, calls)
    while (yield from reader.attempt(_read_next_item(reader, calls))):
        pass
    yield from reader.attempt(_read_end(reader))


def read_call_object(reader: Reader, calls: CallWriter) -> Steps[None]:
    """Read one call. It streams when the name comes before the arguments, as models write it. Raises NotACall."""
    yield from reader.expect("{")
    name: str | None = None
    arguments = "{}"
    while True:
        yield from reader.skip_space()
        key = yield from _read_key(reader)
        if key == "name":
            name = yield from reader.json_string()
            calls.schema(name)
        elif key in _ARGUMENTS and name is not None:
            yield from stream_arguments(reader, calls, name)
            yield from reader.attempt(_read_rest(reader))
            return
        elif key in _ARGUMENTS:
            arguments = yield from _hold_arguments(reader)
        elif key in _LABELS:
            yield from _skip_value(reader)
        else:
            raise NotACall
        yield from reader.skip_space()
        if not (yield from reader.try_word(",")):
            break
    yield from reader.expect("}")
    if name is None:
        raise NotACall
    calls.begin(name)
    calls.write(arguments)
    calls.end()


def stream_arguments(reader: Reader, calls: CallWriter, name: str) -> Steps[None]:
    """Read the arguments of a call of `name`, whose beginning makes the call sure. Raises NotACall."""
    if (yield from reader.peek()) == "{":
        calls.begin(name)
        if not (yield from reader.json_object(calls.write)):
            return
    else:
        arguments = yield from _hold_arguments(reader)
        calls.begin(name)
        calls.write(arguments)
    calls.end()


def _hold_arguments(reader: Reader) -> Steps[str]:
    """Return arguments once they are whole: an object, an object inside a JSON string, or null for none."""
    if (yield from reader.peek()) == "{":
        pieces: list[str] = []
        if not (yield from reader.json_object(pieces.append)):
            raise NotACall
        return "".join(pieces)
    if (yield from reader.try_word("null")):
        return "{}"
    text = yield from reader.json_string()
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise NotACall
    return text


def _read_key(reader: Reader) -> Steps[str]:
    key = yield from reader.json_string()
    yield from reader.skip_space()
    yield from reader.expect(":")
    yield from reader.skip_space()
    return key


def _skip_value(reader: Reader) -> Steps[None]:
    first = yield from reader.peek()
    if first == '"':
        yield from reader.json_string()
    elif not (yield from reader.while_in(_SCALAR.__contains__)):
        raise NotACall


def _read_rest(reader: Reader) -> Steps[None]:
    """Read what may follow the arguments in a call's object, and the bracket that closes it."""
    yield from reader.skip_space()
    while (yield from reader.try_word(",")):
        yield from reader.skip_space()
        if (yield from _read_key(reader)) not in _LABELS:
            raise NotACall
        yield from _skip_value(reader)
        yield from reader.skip_space()
    yield from reader.expect("}")


def _read_next_item(reader: Reader, calls: CallWriter) -> Steps[None]:
    yield from reader.skip_space()
    yield from reader.expect(",")
    yield from reader.skip_space()
    yield from read_call_object(reader, calls)


def _read_end(reader: Reader) -> Steps[None]:
    yield from reader.skip_space()
    yield from reader.expect("]")
