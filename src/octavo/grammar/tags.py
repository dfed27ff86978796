"""Structural tags as a Lark grammar: free text, in which a trigger begins one of the structures that start with it.

The shape is vLLM's: {"structures": [{"begin", "schema", "end"}, ...], "triggers": [...]}. A trigger is matched lazily, so text can
never run past one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.grammar.lark import NO_CALLS, json_of, quoted

MAX_STRUCTURES = 128
MAX_TRIGGERS = 16


def tags_to_lark(tag: dict[str, Any], others: Sequence[str] = ()) -> str:
    """Return the grammar of a structural tag, in llguidance's Lark dialect. `others`: rules of the caller's for what else may stand in
    its text. Raises ValueError that says what is wrong with it."""
    structures, triggers = tag.get("structures"), tag.get("triggers")
    if not isinstance(structures, list) or not 1 <= len(structures) <= MAX_STRUCTURES:
        raise ValueError(f"structures must be a list of 1 to {MAX_STRUCTURES} objects")
    if (
        not isinstance(triggers, list)
        or not 1 <= len(triggers) <= MAX_TRIGGERS
        or not all(isinstance(one, str) and one for one in triggers)
    ):
        raise ValueError(f"triggers must be a list of 1 to {MAX_TRIGGERS} texts")
    bodies: dict[int, list[str]] = {}
    for structure in structures:
        number, body = _body(structure, triggers)
        bodies.setdefault(number, []).append(body)
    lines = [f"start: ({' | '.join([*others, *(f'tag_{number}' for number in bodies)])})* TEXT", r"TEXT: /(.|\n)*/"]
    for number, choices in bodies.items():
        lines.append(f"trigger_{number}[lazy]: TEXT {quoted(triggers[number])}")
        lines.append(f"tag_{number}: trigger_{number} ({' | '.join(choices)})")
    return "\n".join(lines)


def check_apart(tag: dict[str, Any], mark: str) -> None:
    """Raise ValueError unless the texts of a structural tag, which has a grammar, leave it to `mark` alone where calls begin."""
    ends = [structure.get("end", "") for structure in tag["structures"]]
    texts = [*tag["triggers"], *(structure["begin"] for structure in tag["structures"]), *ends]
    if (
        any(mark in text for text in texts)
        or any(trigger in mark for trigger in tag["triggers"])
        or any(end.endswith(mark[:length]) for end in ends for length in range(1, len(mark)))
    ):
        raise ValueError(f"its texts overlap with {mark!r}, with which calls of tools begin; {NO_CALLS}")


def _body(structure: Any, triggers: list[str]) -> tuple[int, str]:
    """Return which trigger begins the structure, and what follows it."""
    begin, end = (structure.get("begin"), structure.get("end", "")) if isinstance(structure, dict) else (None, "")
    if not isinstance(begin, str) or not isinstance(end, str):
        raise ValueError("a structure must be an object with the texts begin and end, and a schema")
    number = next((number for number, trigger in enumerate(triggers) if begin.startswith(trigger)), None)
    if number is None:
        raise ValueError("a structure begins with no trigger")
    schema = structure.get("schema", {})
    if not isinstance(schema, dict | bool):
        raise ValueError("the schema of a structure must be an object")
    rest = begin.removeprefix(triggers[number])
    parts = [quoted(rest) if rest else "", json_of(schema), quoted(end) if end else ""]
    return number, " ".join(part for part in parts if part)
