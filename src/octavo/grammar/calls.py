"""Answers that are calls of tools: an array of {"name": ..., "arguments": ...}, of some tools and in canonical spacing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.grammar.lark import json_of, quoted

MAX_FORCED_CALLS = 16


def calls_to_lark(schemas: Mapping[str, Any], max_calls: int | None) -> str:
    """Return the grammar of one call or several of these tools (name -> schema of the arguments)."""
    more = min(max_calls or MAX_FORCED_CALLS, MAX_FORCED_CALLS) - 1
    others = f' ("," call){{0,{more}}}' if more else ""
    calls = [f"{quoted(_head(name))} {json_of(schema)} {quoted('}')}" for name, schema in schemas.items()]
    return f"""start: "[" call{others} "]"\ncall: {" | ".join(calls)}"""


def _head(name: str) -> str:
    return f'{{"name": {quoted(name)}, "arguments": '
