"""JSON schemas changed before they are compiled."""

from __future__ import annotations

from typing import Any

ANY_OBJECT: dict[str, Any] = {"type": "object"}

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})  # name -> schema
_VALUES = frozenset({"enum", "const", "default", "examples"})  # no schemas within


def closed(schema: Any) -> Any:
    """Return the schema in which objects with properties have no others, unless it says so itself."""
    if isinstance(schema, list):
        return [closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    inner: dict[str, Any] = {}
    for word, value in schema.items():
        if word in _MAPS and isinstance(value, dict):
            inner[word] = {name: closed(one) for name, one in value.items()}
        else:
            inner[word] = value if word in _VALUES else closed(value)
    if isinstance(schema.get("properties"), dict):
        inner.setdefault("additionalProperties", False)
    return inner
