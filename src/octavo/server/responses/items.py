"""Items of the Responses API as chat messages: what a conversation there is in the words of the chat template.

A message is a message; reasoning and function calls join the assistant's message that they stand beside; a call's
output is a message of the role tool. Content and tool calls are then checked as chat's are.
"""

from __future__ import annotations

from typing import Any

from octavo.errors import InvalidRequest
from octavo.server.transcript import Transcript

Item = dict[str, Any]

MAX_ITEMS = 2048

_FIELDS = {
    "message": frozenset({"type", "id", "role", "content", "status", "phase"}),
    "function_call": frozenset({"type", "id", "call_id", "name", "arguments", "status"}),
    "function_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
}


def to_transcript(instructions: str | None, earlier: list[Item], given: list[Item]) -> Transcript:
    """Return instructions, the items of earlier responses and those of this request as messages. Raises InvalidRequest."""
    transcript = Transcript("input", effort="reasoning.effort", format="text.format")
    if instructions:
        transcript.add({"role": "system", "content": instructions}, None)
    for item in earlier:
        _add(transcript, item, None, "input")
    for i, item in enumerate(given):
        _add(transcript, item, i, f"input[{i}]")
    transcript.complete()
    return transcript


def _add(transcript: Transcript, item: object, origin: int | None, where: str) -> None:
    if not isinstance(item, dict):
        raise InvalidRequest(f"{where} must be an object", code="invalid_type", param=where)
    kind = item.get("type", "message")
    known = _FIELDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise InvalidRequest(
            f"{where}.type must be one of {', '.join(_FIELDS)}",
            code="unsupported_value",
            param=f"{where}.type",
        )
    unknown = next((name for name in item if name not in known), None)
    if unknown is not None:
        shown = "".join(character for character in unknown[:40] if character.isprintable())
        raise InvalidRequest(f"{where} has an unknown field {shown}", code="unknown_parameter", param=where)
    if kind == "message":
        _add_message(transcript, item, origin)
    elif kind == "reasoning":
        transcript.assistant(origin, free="reasoning_content")["reasoning_content"] = _reasoning_text(item, where)
    elif kind == "function_call":
        message = transcript.assistant(origin)
        function = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
        message.setdefault("tool_calls", []).append({"id": item.get("call_id"), "type": "function", "function": function})
    else:
        if "output" not in item:
            raise InvalidRequest(f"{where}.output is missing", code="missing_required_parameter", param=f"{where}.output")
        transcript.add({"role": "tool", "tool_call_id": item.get("call_id"), "content": item["output"]}, origin)


def _add_message(transcript: Transcript, item: Item, origin: int | None) -> None:
    message = {"role": item.get("role")} | ({"content": item["content"]} if "content" in item else {})
    if message["role"] == "assistant" and "content" in message:
        transcript.assistant(origin, free="content")["content"] = message["content"]
    else:
        transcript.add(message, origin)


def _reasoning_text(item: Item, where: str) -> str:
    parts = item.get("content") or item.get("summary") or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise InvalidRequest(f"{where}: content and summary must be arrays of parts with a text", code="invalid_type", param=where)
    return "\n".join(part["text"] for part in parts)
