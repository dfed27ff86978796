"""JSON schemas changed before they are compiled, and how blank space is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from octavo.constraints import SCHEMA_DATA, SCHEMA_MAPS

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

ANY_OBJECT: dict[str, Any] = {"type": "object"}

_PLACES = frozenset({"$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"})  # what names a schema
WHITESPACE = r"[\x20\x0A\x0D\x09]{1,16}"  # bounded: a small model asked for JSON may write blank lines for ever


def blank_space(pattern: str | None = None) -> JsonCompileOptions:
    """Return the option that says what may stand where JSON takes blank space."""
    return {"whitespace_flexible": True, "whitespace_pattern": pattern or WHITESPACE}


def any_of(schemas: Sequence[Any]) -> Any:
    """Return the schema of what one of these allows. Raises ValueError where their references cannot be kept apart."""
    dialect = schemas[0].get("$schema")
    if any(schema.get("$schema") != dialect for schema in schemas):
        raise ValueError("they are of several dialects ($schema)")
    parts = {str(number): moved(schema, f"#/$defs/{number}") for number, schema in enumerate(schemas)}
    for part in parts.values():
        part.pop("$schema", None)
    whole = {"anyOf": [{"$ref": f"#/$defs/{number}"} for number in parts], "$defs": parts}
    return whole if dialect is None else whole | {"$schema": dialect}


def moved(schema: Any, place: str) -> Any:
    """Return the schema as it is written at `place` (#/...) in another. Raises ValueError for a reference that cannot be moved."""
    if isinstance(schema, list):
        return [moved(inner, place) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    inner: dict[str, Any] = {}
    for word, value in schema.items():
        if word in _PLACES or (word in SCHEMA_DATA and b'"$ref"' in msgspec.json.encode(value)):
            raise ValueError(f"{word} ties it to its place")
        if word in SCHEMA_MAPS and isinstance(value, dict):
            inner[word] = {name: moved(one, place) for name, one in value.items()}
        elif word == "$ref" and isinstance(value, str):
            if value != "#" and not value.startswith("#/"):
                raise ValueError("a $ref is no path in it")
            inner[word] = place + value[1:]
        else:
            inner[word] = value if word in SCHEMA_DATA else moved(value, place)
    return inner


def closed(schema: Any) -> Any:
    """Return the schema in which objects with properties have no others, unless it says so itself."""
    if isinstance(schema, list):
        return [closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    inner: dict[str, Any] = {}
    for word, value in schema.items():
        if word in SCHEMA_MAPS and isinstance(value, dict):
            inner[word] = {name: closed(one) for name, one in value.items()}
        else:
            inner[word] = value if word in SCHEMA_DATA else closed(value)
    if isinstance(schema.get("properties"), dict):
        inner.setdefault("additionalProperties", False)
    return inner
