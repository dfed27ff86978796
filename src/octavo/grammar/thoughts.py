"""A grammar behind reasoning: what comes up to the closing mark is free, what follows must match."""

from __future__ import annotations

import msgspec

from octavo.constraints import Thoughts
from octavo.grammar.lark import grammars_of, mark


def after_thoughts(thoughts: Thoughts, source: str) -> str:
    """Return, as llguidance reads it, the grammar `source` with such reasoning before it. Where reasoning has not begun, it may be
    left out."""
    inner = grammars_of(source)
    inner[0]["name"] = "answer"
    begins = "thoughts BLANK?" if thoughts.is_begun else f"({mark(thoughts.open)} thoughts BLANK?)?"
    if isinstance(thoughts.close, int):
        rule = f"thoughts: TEXT? {mark(thoughts.close)}"
    else:
        rule = f"thoughts[lazy]: TEXT {mark(thoughts.close)}"
    lead = f"start: {begins} @answer\n{rule}\nTEXT: /(.|\\n)*/\nBLANK: /\\n{{1,2}}/"
    return msgspec.json.encode({"grammars": [{"name": "whole", "lark_grammar": lead}, *inner]}).decode()
