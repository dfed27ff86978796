"""Calls written as Python: [f(a=1, b="x"), g()]. Read by hand, never run; the arguments become JSON.

A call comes out when it is whole. Literals: strings, numbers, True, False, None (and JSON's words for them), lists, tuples and dicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from octavo.parsers.calls import CallWriter
from octavo.parsers.json_text import json_text
from octavo.parsers.reader import NotACall, Reader, Steps

MAX_DEPTH = 32

_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "/": "/", "\n": ""}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_NUMBER = frozenset("+-.0123456789eE_")


class PythonCalls(msgspec.Struct, frozen=True):
    """`in_list`: the calls stand in brackets, with commas; else one a line."""

    openers: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()
    is_bare: bool = False
    short_ids: bool = False
    in_list: bool = True

    def read(self, reader: Reader, calls: CallWriter, opener: str) -> Steps[None]:
        yield from reader.skip_space()
        if self.in_list:
            yield from reader.expect("[")
            yield from reader.skip_space()
        yield from _read_call(reader, calls)
        while (yield from reader.attempt(self._read_next(reader, calls))):
            pass
        if self.in_list:
            yield from reader.attempt(_read_end(reader))

    def _read_next(self, reader: Reader, calls: CallWriter) -> Steps[None]:
        yield from reader.skip_space()
        if self.in_list:
            yield from reader.expect(",")
            yield from reader.skip_space()
        yield from _read_call(reader, calls)


def _read_end(reader: Reader) -> Steps[None]:
    yield from reader.skip_space()
    yield from reader.expect("]")


def _read_call(reader: Reader, calls: CallWriter) -> Steps[None]:
    name = yield from reader.while_in(lambda character: character.isalnum() or character in "_.-")
    calls.schema(name)
    yield from reader.expect("(")
    arguments = yield from _read_pairs(reader, _read_word, "=", ")", 0)
    calls.begin(name)
    calls.write(arguments)
    calls.end()


def _read_word(reader: Reader) -> Steps[str]:
    word = yield from reader.while_in(lambda character: character.isalnum() or character == "_")
    if not word:
        raise NotACall
    return json_text(word)


def _read_literal(reader: Reader, depth: int) -> Steps[str]:
    """Return the JSON of the literal that comes next. Raises NotACall."""
    if depth > MAX_DEPTH:
        raise NotACall
    first = yield from reader.peek()
    if first and first in "'\"":
        return (yield from _read_string(reader))
    if first == "{":
        yield from reader.expect("{")
        return (yield from _read_pairs(reader, _read_string, ":", "}", depth + 1))
    if first and first in "[(":
        yield from reader.take()
        return (yield from _read_items(reader, "]" if first == "[" else ")", depth + 1))
    if first in _NUMBER:
        return (yield from _read_number(reader))
    word = yield from reader.while_in(str.isalpha)
    if word not in _WORDS:
        raise NotACall
    return _WORDS[word]


def _read_string(reader: Reader) -> Steps[str]:
    quote = yield from reader.take()
    if not quote or quote not in "'\"":
        raise NotACall
    text = ""
    while (character := (yield from reader.take())) != quote:
        if not character:
            raise NotACall
        text += (yield from _read_escape(reader)) if character == "\\" else character
    return json_text(text)


def _read_escape(reader: Reader) -> Steps[str]:
    character = yield from reader.take()
    if character not in _HEX_DIGITS:
        return _ESCAPES.get(character, "\\" + character)
    digits = ""
    for _ in range(_HEX_DIGITS[character]):
        digits += yield from reader.take()
    try:
        return chr(int(digits, 16))
    except (ValueError, OverflowError):
        raise NotACall from None


def _read_items(reader: Reader, end: str, depth: int) -> Steps[str]:
    items: list[str] = []
    yield from reader.skip_space()
    while not (yield from reader.try_word(end)):
        items.append((yield from _read_literal(reader, depth)))
        yield from _read_comma(reader, end)
    return f"[{', '.join(items)}]"


def _read_pairs(reader: Reader, read_key: Callable[[Reader], Steps[str]], between: str, end: str, depth: int) -> Steps[str]:
    """Return the JSON object of the pairs before `end`, which is read too."""
    pairs: list[str] = []
    yield from reader.skip_space()
    while not (yield from reader.try_word(end)):
        key = yield from read_key(reader)
        yield from reader.skip_space()
        yield from reader.expect(between)
        yield from reader.skip_space()
        value = yield from _read_literal(reader, depth)
        pairs.append(f"{key}: {value}")
        yield from _read_comma(reader, end)
    return f"{{{', '.join(pairs)}}}"


def _read_comma(reader: Reader, end: str) -> Steps[None]:
    """Read the comma behind an item, which may be left out before `end`."""
    yield from reader.skip_space()
    if not (yield from reader.try_word(",")) and (yield from reader.peek()) != end:
        raise NotACall
    yield from reader.skip_space()


def _read_number(reader: Reader) -> Steps[str]:
    text = (yield from reader.while_in(_NUMBER.__contains__)).replace("_", "")
    try:
        value = int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise NotACall from None
    if isinstance(value, float) and not math.isfinite(value):
        raise NotACall
    return json_text(value)
