"""Grammars as llama.cpp writes them (GBNF, from `root`), turned into Lark. The library does that; what it reads in another way than
llama.cpp is put in words here that both read alike: characters by their number, and a rule of the name `start`, which is Lark's first.
"""

from __future__ import annotations

import re

from llguidance.gbnf_to_lark import gbnf_to_lark

_LARK = re.compile(r"(?m)^[ \t]*(?:%llguidance\b|start[ \t]*(?:\[[^\]\n]*\][ \t]*)?:(?!:=))")
_PIECE = re.compile(r'#[^\n]*|"(?:\\.|[^"\\])*+"|\[(?:\\.|[^\]\\])*+\]|\bstart(?![\w-])', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)
_START = "rule-of-the-name-start"
_SPELLED = {"\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "\\": r"\\"}


def as_lark(grammar: str) -> str:
    """Return the grammar in Lark, unless it is in that already. Raises ValueError where it cannot be read."""
    if _LARK.search(grammar) is not None:
        return grammar
    respelled = _PIECE.sub(_respelled, grammar)
    try:
        return gbnf_to_lark(respelled)
    except Exception as error:  # the library has no other
        raise ValueError(f"it is neither Lark with a rule start nor GBNF with a rule root that can be read: {error}") from None


def _respelled(piece: re.Match[str]) -> str:
    text = piece[0]
    if text == "start":
        return text if piece.start() and piece.string[piece.start() - 1] == "-" else _START
    if text.startswith("#"):
        return text
    return _ESCAPE.sub(_in_set if text.startswith("[") else _in_text, text)


def _in_text(escape: re.Match[str]) -> str:
    character = _character(escape)
    if character is None:
        return escape[0].replace("\\", "") if escape[0] in (r"\[", r"\]") else escape[0]
    if character not in _SPELLED and not " " <= character != "\x7f":
        raise ValueError(r"a text holds a control character; write it as a set, such as [\x01]")
    return _SPELLED.get(character, character)


def _in_set(escape: re.Match[str]) -> str:
    character = _character(escape)
    if character is None:
        return escape[0]
    return f"\\x{ord(character):02x}" if character < "\x80" else character


def _character(escape: re.Match[str]) -> str | None:
    """Return the character that an escape gives by its number, None for another escape."""
    digits = next((group for group in escape.groups() if group is not None), None)
    if digits is None:
        return None
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"{escape[0]} is no character")
    return chr(code)
