"""JSON schemas changed before they are compiled, and how blank space is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.constraints import SCHEMA_DATA, SCHEMA_MAPS

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

ANY_OBJECT: dict[str, Any] = {"type": "object"}

WHITESPACE = r"[\x20\x0A\x0D\x09]{1,16}"  # bounded: a small model asked for JSON may write blank lines for ever


def blank_space(pattern: str | None = None) -> JsonCompileOptions:
    """Return the option that says what may stand where JSON takes blank space."""
    return {"whitespace_flexible": True, "whitespace_pattern": pattern or WHITESPACE}


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
