"""A grammar behind reasoning: what comes up to the closing mark is free, what follows must match."""

from __future__ import annotations

import msgspec

from octavo.constraints import Thoughts
from octavo.grammar.lark import quoted


def after_thoughts(thoughts: Thoughts, source: str) -> str:
    """Return, as llguidance reads it, the grammar `source` with such reasoning before it. Where reasoning has not begun, it may be
    left out."""
    inner = msgspec.json.decode(source)["grammars"] if source.startswith("{") else [{"lark_grammar": source}]
    inner[0]["name"] = "answer"
    begins = "thoughts BLANK?" if thoughts.is_begun else f"({_mark(thoughts.open)} thoughts BLANK?)?"
    if isinstance(thoughts.close, int):
        rule = f"thoughts: TEXT? {_mark(thoughts.close)}"
    else:
        rule = f"thoughts[lazy]: TEXT {_mark(thoughts.close)}"
    lead = f"start: {begins} @answer\n{rule}\nTEXT: /(.|\\n)*/\nBLANK: /\\n{{1,2}}/"
    return msgspec.json.encode({"grammars": [{"name": "whole", "lark_grammar": lead}, *inner]}).decode()


def _mark(mark: str | int) -> str:
    return f"<[{mark}]>" if isinstance(mark, int) else quoted(mark)
