"""Answers that are calls of tools, or may hold some: {"name": ..., "arguments": ...}, of some tools and in canonical spacing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.grammar.json_schema import any_of, moved
from octavo.grammar.lark import json_of, quoted

MAX_FORCED_CALLS = 16  # in an answer that is calls and nothing else


def calls_to_lark(schemas: Mapping[str, Any], max_calls: int | None) -> str:
    """Return the grammar of an array of one call or several of these tools (name -> schema of the arguments)."""
    more = min(max_calls or MAX_FORCED_CALLS, MAX_FORCED_CALLS) - 1
    others = f' ("," call){{0,{more}}}' if more else ""
    return f'start: "[" call{others} "]"\n{_call(schemas)}'


def text_with_calls_to_lark(schemas: Mapping[str, Any], opener: str, closer: str | None, fences: Sequence[str] | None) -> str:
    """Return the grammar of free text in which `opener` begins a call of one of these tools, which `closer` ends.

    `fences`, unless None: a call may also begin the answer without an opener, perhaps behind one of them. No other answer begins like that.
    """
    lines = [
        "tagged: first call_end (next call_end)* TEXT",
        f"first[lazy]: {'TEXT' if fences is None else 'HEAD'} {quoted(opener)}",
        f"next[lazy]: TEXT {quoted(opener)}",
        f"call_end: BLANK? call{'' if closer is None else f' BLANK? {quoted(closer)}'}",
        r"TEXT: /(.|\n)*/",
        r"BLANK: /\n{1,2}/",
        _call(schemas),
    ]
    if fences is None:
        return "\n".join(["start: tagged | TEXT", *lines])
    fence = f"(({' | '.join(map(quoted, fences))}) BLANK)? " if fences else ""
    bare = [
        "start: tagged | bare | HEAD",
        r"HEAD: /(\s*[^\s{\[`<](.|\n)*)?/",
        f"bare: {fence}call (BLANK {quoted('```')})?",
    ]
    return "\n".join([*bare, *lines])


def call_to_lark(schemas: Mapping[str, Any], key: str) -> str:
    """Return the grammar of one call of one of these tools, whose arguments stand under `key`."""
    return f"start: call\n{_call(schemas, key)}"


def bare_call_schema(schemas: Mapping[str, Any], key: str) -> Any:
    """Return the JSON schema of such a call. Raises ValueError where that cannot be said."""
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, key: moved(schema, f"#/properties/{key}")},
            "required": ["name", key],
            "additionalProperties": False,
        }
        for name, schema in schemas.items()
    ]
    return any_of(calls)


def tight_head(name: str, key: str) -> str:
    """Return how a call of the tool begins, without blank space."""
    return f'{{"name":{quoted(name)},{quoted(key)}:{{'


def _call(schemas: Mapping[str, Any], key: str = "arguments") -> str:
    calls = [f"{quoted(_head(name, key))} {json_of(schema)} {quoted('}')}" for name, schema in schemas.items()]
    return f"call: {' | '.join(calls)}"


def _head(name: str, key: str) -> str:
    return f'{{"name": {quoted(name)}, {quoted(key)}: '
