"""Messages of Anthropic's API, whose content comes in blocks, as chat messages.

A tool's result becomes a message of the role tool, before the text that stands with it. Text and tool calls are then
checked as chat's are. Signatures of thinking are not looked at: nothing here signs any.
"""

from __future__ import annotations

import json
from typing import Any

from octavo.errors import InvalidRequest
from octavo.server.anthropic.schemas import MAX_BLOCKS
from octavo.server.transcript import Transcript

Block = dict[str, Any]

_FIELDS = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
}
_BY_ROLE = {"user": ("text", "tool_result"), "assistant": ("text", "thinking", "redacted_thinking", "tool_use")}


def to_transcript(system: Any, messages: list[Any]) -> Transcript:
    """Return the conversation as chat messages. Raises InvalidRequest."""
    transcript = Transcript("messages", effort="output_config.effort", format="output_config.format")
    if system:
        transcript.add({"role": "system", "content": _text(system, "system")}, None)
    for i, message in enumerate(messages):
        _add(transcript, message, i, f"messages[{i}]")
    transcript.complete()
    return transcript


def _add(transcript: Transcript, message: Any, origin: int, where: str) -> None:
    if not isinstance(message, dict):
        raise InvalidRequest(f"{where} must be an object", code="invalid_type", param=where)
    role = message.get("role")
    if not isinstance(role, str) or role not in _BY_ROLE:
        raise InvalidRequest(f"{where}.role must be user or assistant", param=f"{where}.role")
    if set(message) - {"role", "content"}:
        raise InvalidRequest(f"{where} has an unknown field", code="unknown_parameter", param=where)
    content = message.get("content")
    if isinstance(content, str):
        transcript.add({"role": role, "content": content}, origin)
        return
    blocks = _blocks(content, f"{where}.content", _BY_ROLE[role])
    if role == "user":
        _add_user(transcript, blocks, origin, where)
    else:
        _add_assistant(transcript, blocks, origin, where)


def _add_user(transcript: Transcript, blocks: list[Block], origin: int, where: str) -> None:
    for j, block in enumerate(blocks):
        if block["type"] == "tool_result":
            place = f"{where}.content[{j}]"
            text = _text(block.get("content") or "", f"{place}.content")
            if block.get("is_error") not in (None, True, False):
                raise InvalidRequest(f"{place}.is_error must be true or false", code="invalid_type", param=f"{place}.is_error")
            content = f"Error: {text}" if block.get("is_error") else text  # templates have no other word for it
            transcript.add({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content}, origin)
    texts = [block for block in blocks if block["type"] == "text"]
    if texts:
        transcript.add({"role": "user", "content": _joined(texts, where)}, origin)


def _add_assistant(transcript: Transcript, blocks: list[Block], origin: int, where: str) -> None:
    message: dict[str, Any] = {"role": "assistant"}
    thoughts = [block.get("thinking") for block in blocks if block["type"] == "thinking"]
    if thoughts:
        if not all(isinstance(thought, str) for thought in thoughts):
            raise InvalidRequest(f"{where}.content: thinking must be a string", code="invalid_type", param=f"{where}.content")
        message["reasoning_content"] = "\n".join(map(str, thoughts))
    texts = [block for block in blocks if block["type"] == "text"]
    if texts:
        message["content"] = _joined(texts, where)
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if calls:
        message["tool_calls"] = [_call(block, where) for block in calls]
    transcript.add(message, origin)


def _call(block: Block, where: str) -> dict[str, Any]:
    arguments = block.get("input")
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"{where}.content: the input of a tool_use must be an object", code="invalid_type", param=f"{where}.content")
    function = {"name": block.get("name"), "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": block.get("id"), "type": "function", "function": function}


def _blocks(content: Any, where: str, kinds: tuple[str, ...]) -> list[Block]:
    """Return content blocks, each of one of `kinds` and with no unknown field."""
    if not isinstance(content, list):
        raise InvalidRequest(f"{where} must be a string or an array of blocks", code="invalid_type", param=where)
    if not content:
        raise InvalidRequest(f"{where} is an empty array", code="empty_array", param=where)
    if len(content) > MAX_BLOCKS:
        raise InvalidRequest(f"{where} has too many blocks; the limit is {MAX_BLOCKS:,}", code="array_above_max_length", param=where)
    for j, block in enumerate(content):
        place = f"{where}[{j}]"
        if not isinstance(block, dict):
            raise InvalidRequest(f"{place} must be an object", code="invalid_type", param=place)
        kind = block.get("type")
        if not isinstance(kind, str) or kind not in kinds:
            raise InvalidRequest(f"{place}.type must be {' or '.join(kinds)}", code="unsupported_content_type", param=f"{place}.type")
        if set(block) - _FIELDS[kind]:
            raise InvalidRequest(f"{place} has an unknown field", code="unknown_parameter", param=place)
    return content


def _text(content: Any, where: str) -> str:
    """Return the text of a string or of blocks of text."""
    if isinstance(content, str):
        return content
    return _joined(_blocks(content, where, ("text",)), where)


def _joined(blocks: list[Block], where: str) -> str:
    texts = [block.get("text") for block in blocks]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidRequest(f"{where}: the text of a block must be a string", code="invalid_type", param=where)
    return "\n".join(map(str, texts))
