"""`StructuredOutputsParams`: what an answer must match. Names and meanings are vLLM's; every field has a bound of ours.

The bounds are checked when one is made, before any compiler sees it: what is refused here costs a walk over the text. Whether
a schema, a pattern or a grammar means anything, the grammar room finds out.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import msgspec

from octavo.errors import InvalidRequest

JSON_KINDS = ("json", "json_object")
KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
MAX_SCHEMA_BYTES = 65_536
MAX_SCHEMA_DEPTH = 64  # levels of JSON: an object inside an object takes two, so 32 schemas within one another
MAX_PROPERTIES = 1000  # in all objects of a schema together
MAX_ENUM_VALUES = 1000  # likewise
MAX_REGEX_CHARS = 1024
MAX_GRAMMAR_CHARS = 65_536
MAX_NESTING = 64  # brackets within one another in a pattern or grammar
MAX_CHOICES = 1000
MAX_CHOICE_CHARS = 1024
MAX_CHOICES_CHARS = 65_536  # of all choices together
MAX_WHITESPACE_CHARS = 64
MAX_NUMBER = 2**53  # either way from zero; beyond it, readers of JSON round
MAX_SHOWN_NUMBER = 10**24

SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})  # name -> schema
SCHEMA_DATA = frozenset({"enum", "const", "default", "examples"})  # no schemas within
_EXACT_DATA = frozenset({"enum", "const"})
_EXACT_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")

Json = dict[str, Any]

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


class Thoughts(msgspec.Struct, frozen=True, kw_only=True):
    """Reasoning that may come before the answer: the marks around it, as texts or as the ids of their tokens. `is_begun`: the answer
    begins inside it."""

    open: str | int
    close: str | int
    is_begun: bool


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of tools, which an answer may be instead of a match; in a structural tag they stand in its text. `open`, `close`: the marks
    around them, as texts or as the ids of their tokens, `close` none of models that write none. `call`: the grammar of one call. `bare`:
    the schema of one that comes without marks, as JSON, None where all have some. `begins`: how a match may not begin, for calls do."""

    open: str | int
    close: str | int | None
    call: str
    bare: str | None
    max_calls: int
    begins: tuple[str, ...]


class StructuredOutputsParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an answer must match, of one kind. Raises InvalidRequest naming the field and the bound.

    `json`: a JSON schema, as text or as an object. `regex`: the whole answer. `choice`: one of these texts. `grammar`: EBNF as
    llama.cpp writes it (GBNF) or Lark, whose first rule is root or start. `json_object`: true for any JSON object.
    `structural_tag`: {"structures": [{"begin", "schema", "end"}], "triggers": [...]}: text in which each trigger begins one of the
    structures. With json and json_object, blank space is bounded: `whitespace_pattern` is what may stand where JSON takes some,
    `disable_any_whitespace` allows none. `disable_additional_properties`: objects with properties have no others unless the schema
    says so. `calls`: what may come instead, `thoughts`: what may come first, in any words; the server sets them for requests with tools
    and for models that reason.
    """

    json: str | Json | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | Json | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    calls: Calls | None = None
    thoughts: Thoughts | None = None

    def __post_init__(self) -> None:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise _wrong("", f"must hold one of {', '.join(KINDS)}, not {' and '.join(kinds) if kinds else 'none'}")
        for name in ("disable_any_whitespace", "disable_additional_properties"):
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, "must be true or false", "invalid_type")
        for name in ("json", "structural_tag"):
            if getattr(self, name) is not None:
                msgspec.structs.force_setattr(self, name, _bounded_json(name, getattr(self, name)))
        for name, limit in (
            ("regex", MAX_REGEX_CHARS),
            ("grammar", MAX_GRAMMAR_CHARS),
            ("whitespace_pattern", MAX_WHITESPACE_CHARS),
        ):
            if getattr(self, name) is not None:
                _check_text(name, getattr(self, name), limit)
        if self.choice is not None:
            msgspec.structs.force_setattr(self, "choice", _bounded_choices(self.choice))
        if self.json_object is not None and self.json_object is not True:
            raise _wrong("json_object", "must be true; leave it out for any text")
        if self.whitespace_pattern is not None and self.disable_any_whitespace:
            raise _wrong("whitespace_pattern", "asks for blank space that disable_any_whitespace forbids")
        for name in ("whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"):
            if getattr(self, name) and self.kind not in JSON_KINDS:
                raise _wrong(name, f"is for {' and '.join(JSON_KINDS)}, not for {self.kind}; leave it out")

    @property
    def kind(self) -> str:
        return next(kind for kind in KINDS if getattr(self, kind) is not None)


def _bounded_json(name: str, value: Any) -> str:
    """Return a JSON object as text, unless it is too large, too deep or none."""
    if isinstance(value, str):
        if len(value) > MAX_SCHEMA_BYTES:
            raise _wrong(name, f"takes more than {MAX_SCHEMA_BYTES:,} bytes", "schema_too_complex")
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise _wrong(name, "is no JSON", "invalid_json_schema") from None
        except RecursionError:
            raise _wrong(name, "is nested too deep", "schema_too_complex") from None
    if not isinstance(value, dict):
        raise _wrong(name, "must be a JSON object", "invalid_json_schema")
    check_schema(name, value)
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, UnicodeEncodeError):
        raise _wrong(name, "holds what JSON cannot", "invalid_json_schema") from None
    if len(text) > MAX_SCHEMA_BYTES:
        raise _wrong(name, f"takes {len(text):,} bytes; the limit is {MAX_SCHEMA_BYTES:,}", "schema_too_complex")
    return text.decode()


def check_schema(name: str, schema: Json) -> None:
    """Raise InvalidRequest, which names the field `name`, for a schema that is too deep or too wide, refers to what is not in it, holds
    numbers that would be rounded, or sets options of the compiler. What is not a schema but data is only looked through for numbers,
    unless a $ref makes it a schema."""
    num_properties = num_values = 0
    seen: set[int] = set()  # schemas, by their identity
    waiting: list[tuple[Any, int, str]] = [(schema, 1, "")]  # a value, its level, and the keyword of the data that it is part of
    while waiting:
        value, depth, word = waiting.pop()
        if depth > MAX_SCHEMA_DEPTH:
            raise _wrong(name, f"is nested deeper than {MAX_SCHEMA_DEPTH} levels of JSON", "schema_too_complex")
        if word in _EXACT_DATA:
            _check_number(name, word, value)
        if isinstance(value, list):
            waiting += ((inner, depth + 1, word) for inner in value)
        if not isinstance(value, dict):
            continue
        if word:
            waiting += ((inner, depth + 1, word) for inner in value.values())
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(properties := value.get("properties"), dict):
            num_properties += len(properties)
        if isinstance(values := value.get("enum"), list):
            num_values += len(values)
        if num_properties > MAX_PROPERTIES:
            raise _wrong(name, f"has more than {MAX_PROPERTIES:,} properties", "schema_too_complex")
        if num_values > MAX_ENUM_VALUES:
            raise _wrong(name, f"has more than {MAX_ENUM_VALUES:,} enum values", "schema_too_complex")
        _check_words(name, value)
        if isinstance(reference := value.get("$ref"), str):
            waiting.append((_target(schema, reference), 1, ""))
        for key, inner in value.items():
            if key in SCHEMA_MAPS and isinstance(inner, dict):
                waiting += ((one, depth + 2, "") for one in inner.values())
            else:
                waiting.append((inner, depth + 1, key if key in SCHEMA_DATA else ""))


def _target(schema: Json, reference: str) -> Any:
    """Return the part of the schema that a JSON pointer names, None where there is none."""
    value: Any = schema
    for part in unquote(reference).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and len(key) < 6 and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def _check_words(name: str, schema: Json) -> None:
    """Raise InvalidRequest for a keyword of this schema, not of those within, that cannot be taken."""
    if "x-guidance" in schema:
        raise _wrong(name, "may not set x-guidance, options of the compiler; leave it out", "invalid_json_schema")
    if isinstance(pattern := schema.get("pattern"), str):
        _check_text(name, pattern, MAX_REGEX_CHARS, "holds a pattern that ")
    if isinstance(reference := schema.get("$ref"), str) and not reference.startswith("#"):
        raise _wrong(name, "may only refer to parts of itself ($ref that begins with #)", "invalid_json_schema")
    for word in _EXACT_NUMBERS:
        _check_number(name, word, schema.get(word))


def _check_number(name: str, word: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) <= MAX_NUMBER:
        return
    shown = str(value) if abs(value) < MAX_SHOWN_NUMBER else "a number too long to show"
    raise _wrong(
        name,
        f"has {shown} in {word}; numbers beyond {MAX_NUMBER:,} (2^53) either way cannot be held to exactly; "
        "use a smaller one, a string, or leave it out",
        "invalid_json_schema",
    )


def _check_text(name: str, text: Any, limit: int, what: str = "") -> None:
    """Raise InvalidRequest for an empty pattern or grammar, one that is too long, and one whose brackets are nested too deep. `what` is
    before each reason."""
    if not isinstance(text, str):
        raise _wrong(name, f"{what}must be a string, not {type(text).__name__}", "invalid_type")
    if not what and not (text if name == "whitespace_pattern" else text.strip()):
        raise _wrong(name, "is empty; leave it out")
    if len(text) > limit:
        code = "schema_too_complex" if what else "string_above_max_length"
        raise _wrong(name, f"{what}has {len(text):,} characters; the limit is {limit:,}", code)
    if not text.isprintable() and "\0" in text:
        raise _wrong(name, f"{what}holds a NUL character")
    _check_unicode(name, text)
    depth = 0
    characters = iter(text)
    for character in characters:
        if character == "\\":
            next(characters, None)
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING and depth:
            depth -= 1
        if depth > MAX_NESTING:
            raise _wrong(name, f"{what}has brackets nested deeper than {MAX_NESTING}", "schema_too_complex")


def _check_unicode(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _wrong(name, "holds half of a surrogate pair, which is no character") from None


def _bounded_choices(choices: Any) -> tuple[str, ...]:
    if not isinstance(choices, list | tuple) or not all(isinstance(text, str) for text in choices):
        raise _wrong("choice", "must be a list of strings", "invalid_type")
    if not choices:
        raise _wrong("choice", "is empty; leave it out")
    if len(choices) > MAX_CHOICES:
        raise _wrong("choice", f"has {len(choices):,} items; the limit is {MAX_CHOICES:,}", "array_above_max_length")
    if not all(1 <= len(text) <= MAX_CHOICE_CHARS for text in choices):
        raise _wrong("choice", f"holds a text that has not 1 to {MAX_CHOICE_CHARS:,} characters")
    if sum(map(len, choices)) > MAX_CHOICES_CHARS:
        raise _wrong("choice", f"has more than {MAX_CHOICES_CHARS:,} characters in all", "string_above_max_length")
    for text in choices:
        _check_unicode("choice", text)
    return tuple(choices)


def refusal(name: str, reason: str) -> InvalidRequest:
    """Return what to raise for a field within bounds that does not compile."""
    return _wrong(name, f"cannot be held to: {reason}", "invalid_json_schema" if name in ("json", "structural_tag") else "invalid_value")


def _wrong(name: str, reason: str, code: str = "invalid_value") -> InvalidRequest:
    where = f"structured_outputs.{name}" if name else "structured_outputs"
    return InvalidRequest(f"{where} {reason}", code=code, param=where)
