"""Pieces of llguidance's Lark dialect, and grammars in it that come with a request, before they are compiled.

A grammar may describe text, and nothing else: no token by its name or number (`<...>`), for a control token is never part of an
answer; no other grammar (`@...`); none of the compiler's options. The JSON schemas within it (`%json`) have the bounds that all have.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import msgspec

from octavo.constraints import check_schema
from octavo.grammar.json_schema import blank_space

# the dialect's own lexemes, as far as they can hide another; in them no character is looked at twice
_PIECE = re.compile(
    r'(?P<text>"(?:\\[^\x00-\x1F]|[^"\\\x00-\x1F\x7F])*+")'
    r"|(?P<comment>(?:#|//)[^\n]*)"
    r"|(?P<pattern>/(?:\\[^\n]|[^/\\])++/)"
    r"|(?P<directive>%(?:json|regex|llguidance))(?P<blank>[ \t\r\n]*)"
    r'|(?P<wrong>["/<@])'
)
NO_CALLS = "send tool_choice none for an answer that matches, required for calls"
_WRONG = {
    '"': "a text has no end",
    "/": "a pattern has no end",
    "<": "tokens cannot be named (<...>): an answer is text, and control tokens are never part of it; write texts in quotes",
    "@": "other grammars cannot be referred to (@...)",
}


def quoted(text: str) -> str:
    """Return a text as a terminal."""
    return msgspec.json.encode(text).decode()


def mark(mark: str | int) -> str:
    """Return a mark, a text or the id of a token, as a terminal; for grammars of the server's own making."""
    return f"<[{mark}]>" if isinstance(mark, int) else quoted(mark)


def grammars_of(source: str) -> list[dict[str, Any]]:
    """Return the grammars of a source as llguidance reads it, of which the first makes the text."""
    if not source.startswith("{"):
        return [{"lark_grammar": source}]
    grammars: list[dict[str, Any]] = msgspec.json.decode(source)["grammars"]
    return grammars


def json_of(schema: Any) -> str:
    """Return the JSON that a schema describes, as a part of a rule; its $refs are to parts of itself."""
    return f"%json {msgspec.json.encode(schema).decode()}"


def prepared(name: str, grammar: str) -> str:
    """Return the grammar with its blank space in JSON bounded; `name` is the field that it comes from.

    Raises InvalidRequest for a schema in it that is out of bounds, and ValueError for what a grammar may not hold."""
    if grammar.lstrip().startswith("{"):
        raise ValueError("it begins with no rule")
    parts: list[str] = []
    at = 0
    while (piece := _PIECE.search(grammar, at)) is not None:
        parts.append(grammar[at : piece.start()])
        at = piece.end()
        if piece["wrong"] is not None:
            line = grammar.count("\n", 0, piece.start()) + 1
            raise ValueError(f"{_WRONG[piece['wrong']]}, in line {line}")
        if piece["directive"] is None:
            parts.append(piece[0])
        else:
            value, at = _DECODER.raw_decode(grammar, at)
            text = _directive(name, piece["directive"], value)
            num_lines = grammar.count("\n", piece.start(), at)
            parts.append(text[:1] + "\n" * num_lines + text[1:] if num_lines and text.startswith("{") else text)
            parts[-1] = f"{piece['directive']} {parts[-1]}"
    return "".join((*parts, grammar[at:]))


def _directive(name: str, directive: str, value: Any) -> str:
    """Return the JSON behind a directive as it is compiled."""
    if directive == "%llguidance" and value != {}:
        raise ValueError("options of the compiler (%llguidance) cannot be set; leave them out")
    if directive == "%json" and isinstance(value, dict):
        check_schema(name, value)
        value = value | {"x-guidance": blank_space()}
    return msgspec.json.encode(value).decode()


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
