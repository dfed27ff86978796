"""Pieces of llguidance's Lark dialect."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.grammar.json_schema import blank_space


def quoted(text: str) -> str:
    """Return a text as a terminal."""
    return msgspec.json.encode(text).decode()


def json_of(schema: Any) -> str:
    """Return the JSON that a schema describes, as a part of a rule; its $refs are to parts of itself."""
    bounded = schema | {"x-guidance": blank_space()} if isinstance(schema, dict) else schema
    return f"%json {msgspec.json.encode(bounded).decode()}"
