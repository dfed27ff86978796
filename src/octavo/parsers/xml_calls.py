"""Calls written as tags: <function=NAME><parameter=KEY>value</parameter></function>, or as others write their tags.

A value is written without quotes; what it is, the schema of the parameter says. A text streams as it comes.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from octavo.parsers.calls import CallWriter, JsonSchema
from octavo.parsers.json_text import json_text
from octavo.parsers.reader import Reader, Steps

_TEXT = frozenset({"string"})
_JSON = frozenset({"object"})
_PYTHON_WORDS = {"True": True, "False": False, "None": None}


class XmlCalls(msgspec.Struct, frozen=True):
    """[`sections`] `function` NAME `after_name` {`parameter` KEY `after_key` value `value_ends`} `function_end`.

    `after_text_key`, `after_json_key`: what follows a key whose value is a text, or JSON, whatever the schema says.
    """

    sections: tuple[str, ...]
    closers: tuple[str, ...] = ()
    function: str = "<function="
    after_name: str = ">"
    parameter: str = "<parameter="
    after_key: tuple[str, ...] = (">",)
    after_text_key: str | None = None
    after_json_key: str | None = None
    value_ends: tuple[str, ...] = ("\n</parameter>", "</parameter>")
    function_end: str = "</function>"
    is_bare: bool = False
    short_ids: bool = False

    @property
    def openers(self) -> tuple[str, ...]:
        return (*self.sections, self.function)

    def read(self, reader: Reader, calls: CallWriter, opener: str) -> Steps[None]:
        if opener != self.function:
            yield from self._skip_sections(reader)
            yield from reader.expect(self.function)
        name = (yield from reader.while_in(lambda character: character not in '<>"\n')).rstrip()
        yield from reader.expect(self.after_name)
        properties = calls.schema(name).get("properties")
        calls.begin(name)
        before = "{"
        while True:
            yield from reader.skip_space()
            if not (yield from reader.try_word(self.parameter)):
                break
            key = yield from reader.while_in(lambda character: character not in self.after_key[0][0] + "\n")
            kinds = yield from self._read_kinds(reader, _schema_of(properties, key))
            calls.write(f"{before}{json_text(key)}: ")
            before = ", "
            if not (yield from self._read_value(reader, calls, kinds)):
                return
        if (yield from reader.peek()):  # else the answer ends here, and so do the arguments
            yield from reader.try_word(self.function_end)
            calls.write("{}" if before == "{" else "}")
            calls.end()

    def _skip_sections(self, reader: Reader) -> Steps[None]:
        yield from reader.skip_space()
        for section in self.sections:
            yield from reader.try_word(section)
            yield from reader.skip_space()

    def _read_kinds(self, reader: Reader, schema: JsonSchema) -> Steps[frozenset[str]]:
        """Read what follows a key; return the types that its value may have."""
        if self.after_text_key is not None and (yield from reader.try_word(self.after_text_key)):
            return _TEXT
        if self.after_json_key is not None and (yield from reader.try_word(self.after_json_key)):
            return _JSON
        for number, word in enumerate(self.after_key):
            if number:
                yield from reader.skip_space()
            yield from reader.try_word(word)
        return json_types(schema)

    def _read_value(self, reader: Reader, calls: CallWriter, kinds: frozenset[str]) -> Steps[bool]:
        """Write a parameter's value as JSON; return False when the answer ends in it."""
        if self.value_ends[0].startswith("\n"):
            yield from reader.try_word("\n")
        if kinds <= _TEXT:
            calls.write('"')
            end = yield from reader.until(self.value_ends, lambda text: calls.write(json_text(text)[1:-1]))
            if end is not None:
                calls.write('"')
            return end is not None
        pieces: list[str] = []
        end = yield from reader.until(self.value_ends, pieces.append)
        text = "".join(pieces)
        calls.write(text if end is None else _typed(text, kinds))
        return end is not None


def _typed(text: str, kinds: frozenset[str]) -> str:
    """Return the JSON of a value whose type is not surely text: what it says if that fits, else a string."""
    word = text.strip()
    try:
        value = _PYTHON_WORDS[word] if word in _PYTHON_WORDS else json.loads(word, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json_text(text)
    return json_text(text if "string" in kinds and _kinds_of(value).isdisjoint(kinds) else value)


def _kinds_of(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int | float):
        return {"number", "integer"} if value == int(value) else {"number"}
    return {"null"} if value is None else {"string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"}


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def json_types(schema: JsonSchema) -> frozenset[str]:
    """Return the JSON types that `schema` names, itself or in its alternatives; none when it names none."""
    names = schema.get("type")
    kinds = {names} if isinstance(names, str) else {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
    for word in ("anyOf", "oneOf"):
        alternatives = schema.get(word)
        for alternative in alternatives if isinstance(alternatives, list) else ():
            if isinstance(alternative, dict):
                kinds |= json_types(alternative)
    return frozenset(kinds)


def _schema_of(properties: Any, key: str) -> JsonSchema:
    schema = properties.get(key) if isinstance(properties, dict) else None
    return schema if isinstance(schema, dict) else {}
