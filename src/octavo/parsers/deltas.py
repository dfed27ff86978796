"""What a model's text says, piece by piece: content, reasoning, and tool calls.

A call begins once, with its name, then come pieces of its arguments, which joined are a JSON text. That text is the
model's own: it may be no valid JSON, and ends early when the answer does.
"""

from __future__ import annotations

import msgspec


class Content(msgspec.Struct, frozen=True, gc=False):
    text: str


class Reasoning(msgspec.Struct, frozen=True, gc=False):
    text: str


class CallBegin(msgspec.Struct, frozen=True, gc=False):
    """Call number `index` of this answer, counted from 0."""

    index: int
    call_id: str
    name: str


class CallArguments(msgspec.Struct, frozen=True, gc=False):
    index: int
    text: str


Delta = Content | Reasoning | CallBegin | CallArguments


def joined_deltas(deltas: list[Delta]) -> list[Delta]:
    """Return the same deltas, neighbours that go on with each other made one."""
    joined: list[Delta] = []
    for delta in deltas:
        match joined[-1] if joined else None, delta:
            case (Content(before), Content(text)):
                joined[-1] = Content(before + text)
            case (Reasoning(before), Reasoning(text)):
                joined[-1] = Reasoning(before + text)
            case (CallArguments(index, before), CallArguments(same, text)) if index == same:
                joined[-1] = CallArguments(index, before + text)
            case _:
                joined.append(delta)
    return joined
