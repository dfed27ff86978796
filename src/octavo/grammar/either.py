"""An answer that matches or is calls of tools: two grammars beside one another.

Lexemes of both are looked for at once, and the longest counts; so they must differ in their first character, which `Calls.begins` sees to.
Calls without a mark, beside a match that is JSON, are one JSON schema with it: only so do both have the same lexemes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.constraints import Calls
from octavo.grammar.lark import grammars_of, mark, prepared

SPACE = r"SPACE: /[ \n]{1,8}/"


def either(source: str, calls: Calls) -> str:
    """Return, as llguidance reads it, the grammar of what `source` makes, and of calls: each behind a mark, or an array behind one."""
    inner = grammars_of(source)
    inner[0]["name"] = "match"
    more = f" (SPACE? marked){{0,{calls.max_calls - 1}}}" if calls.max_calls > 1 else ""
    lead = [
        f"start: @match | marked{more} | {_marked(calls, 'array')}",
        f"marked: {_marked(calls, '@call')}",
        f"array: {_array(calls)}",
        SPACE,
    ]
    return _whole(lead, inner, calls)


def with_calls(tags: str, calls: Calls) -> str:
    """Return, as llguidance reads it, the grammar `tags` of text with the rule `tagged_call`: calls, wherever their mark comes."""
    body = _body(calls, "(@call | array)")
    if isinstance(calls.open, int):
        rules = [f"tagged_call: TEXT? {mark(calls.open)} {body}"]
    else:
        rules = [f"call_mark[lazy]: TEXT {mark(calls.open)}", f"tagged_call: call_mark {body}"]
    return _whole([tags, *rules, f"array: {_array(calls)}", SPACE], [], calls)


def _marked(calls: Calls, what: str) -> str:
    return f"{mark(calls.open)} {_body(calls, what)}"


def _body(calls: Calls, what: str) -> str:
    """Return what stands behind the mark that opens calls; the other mark may be left out."""
    return f"SPACE? {what}" if calls.close is None else f"SPACE? {what} (SPACE? {mark(calls.close)})?"


def _array(calls: Calls) -> str:
    more = f' (SPACE? "," SPACE? @call){{0,{calls.max_calls - 1}}}' if calls.max_calls > 1 else ""
    return f'"[" SPACE? @call{more} SPACE? "]"'


def _whole(lead: list[str], parts: list[dict[str, Any]], calls: Calls) -> str:
    whole = {"name": "whole", "lark_grammar": "\n".join(lead)}
    call = {"name": "call", "lark_grammar": prepared("grammar", calls.call)}
    return msgspec.json.encode({"grammars": [whole, *parts, call]}).decode()
