"""Why a constraint does not compile, in words that are safe and useful to show: the library's, shortened, and others where those would
mislead."""

from __future__ import annotations

from octavo.grammar.matcher import NOTHING_FOLLOWS, TOO_MUCH_WORK

MAX_CHARS = 200
PATTERN_ERROR = "regex parse error:"


def in_plain_words(reason: str) -> str:
    """Return the library's `reason` on one line, without what cannot be printed."""
    lines = reason.strip().splitlines() or [""]
    first = lines[0]
    if first.startswith(NOTHING_FOLLOWS):
        return "nothing can match it (a rule or $ref that only comes back to itself, or bounds that exclude each other)"
    if first.startswith("oneOf "):
        return "oneOf whose alternatives may overlap is not supported; use anyOf"
    if "Too many items" in first:
        return TOO_MUCH_WORK
    if first.endswith(PATTERN_ERROR):
        first = _pattern_error(lines)
    return "".join(character for character in first[:MAX_CHARS] if character.isprintable())


def _pattern_error(lines: list[str]) -> str:
    """Return what is wrong with a pattern and where; the library draws that over several lines: the pattern, a mark below, the error."""
    what = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "it cannot be read")
    is_drawn = len(lines) > 2 and lines[1].startswith("    ") and lines[2].strip(" ^") == ""
    where = f" at character {len(lines[2]) - len(lines[2].lstrip()) - 3}" if is_drawn else ""
    return f"error in a pattern{where}: {what}"
