"""`validate_messages`: a chat request's messages from plain JSON values to one clean shape.

Knows OpenAI's message format; knows nothing of templates or tokens. What comes out: a list of dicts that hold `role`
and, where given, `content` (str or None), `name`, `tool_calls` (`id`, `type`, `function` with `name` and `arguments`,
a JSON text), `tool_call_id` and `reasoning_content`. Cleaning is idempotent. Content in parts is joined by newlines.
"""

from __future__ import annotations

import json
import re
from typing import Any

from octavo.errors import InvalidRequest

MAX_MESSAGES = 4096
MAX_PARTS = 1024
MAX_TOOL_CALLS = 128
MAX_ID_CHARS = 256
MAX_NOTES = 65_536  # annotations or logprobs of an earlier answer, which are not read
MAX_INDEX = 2**31 - 1

ROLES = ("system", "developer", "user", "assistant", "tool")
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_OTHER_PARTS = frozenset(
    {"image_url", "image", "input_image", "input_audio", "audio_url", "audio", "video_url", "video", "file", "input_file"}
)
_PART_NOTES: dict[str, tuple[type[Any], int]] = {
    "annotations": (list, MAX_NOTES),
    "logprobs": (list, MAX_NOTES),
    "cache_control": (dict, 16),
}
_FIELDS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "annotations"})
ABSENT_FIELDS = ("refusal", "audio", "function_call")  # stand empty in answers that clients send back
_CALL_FIELDS = frozenset({"id", "type", "function", "index"})
_FUNCTION_FIELDS = frozenset({"name", "arguments"})
NAME_PATTERN = r"^[^\s<|\\/>\x00-\x1f]{1,64}$"
_NAME = re.compile(NAME_PATTERN[1:-1])

_JSON_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}

Message = dict[str, Any]


def validate_messages(messages: object) -> list[Message]:
    """Return the messages in their clean shape; raises InvalidRequest whose `param` says where (messages[2].role)."""
    if not isinstance(messages, list | tuple):
        raise _wrong_type("messages", "an array of messages", messages)
    if not messages:
        raise InvalidRequest("messages is empty; send at least one message", code="empty_array", param="messages")
    if len(messages) > MAX_MESSAGES:
        raise _too_many("messages", "entries", len(messages), MAX_MESSAGES)
    known_calls: set[str] = set()
    return [_message(message, f"messages[{i}]", known_calls) for i, message in enumerate(messages)]


def _message(message: object, where: str, known_calls: set[str]) -> Message:
    if not isinstance(message, dict):
        raise _wrong_type(where, "an object with role and content", message)
    for field in message:
        if field not in _FIELDS and field not in ABSENT_FIELDS:
            raise _unknown_field(where, field)
    for field in ABSENT_FIELDS:
        if message.get(field) is not None:
            raise InvalidRequest(
                f"{where}.{field} is not read by this server; leave it out", code="unsupported_parameter", param=f"{where}.{field}"
            )
    _check_note(message, "annotations", list, MAX_NOTES, where)
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidRequest(f"{where}.role must be one of {', '.join(ROLES)}", param=f"{where}.role")
    clean: Message = {"role": role}
    calls = _tool_calls(message.get("tool_calls"), role, where)
    if calls:
        clean["tool_calls"] = calls
        known_calls.update(call["id"] for call in calls)
    clean["content"] = _content(message, bool(calls), where)
    if message.get("name") is not None:
        clean["name"] = _name(message["name"], f"{where}.name")
    if role == "tool":
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str) or call_id not in known_calls:
            raise InvalidRequest(
                f"{where}.tool_call_id must name a tool call of an earlier assistant message", param=f"{where}.tool_call_id"
            )
        clean["tool_call_id"] = call_id
    elif message.get("tool_call_id") is not None:
        raise InvalidRequest(f"{where}.tool_call_id: only a tool's message answers a call", param=f"{where}.tool_call_id")
    for field in ("reasoning", "reasoning_content"):  # two names of one thing; the second wins
        if message.get(field) is not None:
            if not isinstance(message[field], str):
                raise _wrong_type(f"{where}.{field}", "a string", message[field])
            clean["reasoning_content"] = message[field]
    return clean


def _content(message: Message, has_calls: bool, where: str) -> str | None:
    where = f"{where}.content"
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        if has_calls:
            return None
        if "content" not in message:
            raise InvalidRequest(f"{where} is missing", code="missing_required_parameter", param=where)
        raise _wrong_type(where, "a string or an array of text parts", content)
    if not isinstance(content, list | tuple):
        raise _wrong_type(where, "a string or an array of text parts", content)
    if not content:
        raise InvalidRequest(f"{where} is an empty array; send a string or at least one part", code="empty_array", param=where)
    if len(content) > MAX_PARTS:
        raise _too_many(where, "parts", len(content), MAX_PARTS)
    return "\n".join(_part(part, f"{where}[{j}]") for j, part in enumerate(content))


def _part(part: object, where: str) -> str:
    if not isinstance(part, dict):
        raise _wrong_type(where, "an object with type and text", part)
    kind = part.get("type")
    if isinstance(kind, str) and kind in _OTHER_PARTS:
        raise InvalidRequest(
            f"{where} is of type {kind}; this model reads text only", code="unsupported_content_type", param=f"{where}.type"
        )
    if not isinstance(kind, str) or kind not in _TEXT_PARTS:
        raise InvalidRequest(f'{where}.type must be "text"', param=f"{where}.type")
    for field in part:
        if field in _PART_NOTES:
            _check_note(part, field, *_PART_NOTES[field], where)
        elif field not in ("type", "text"):
            raise _unknown_field(where, field)
    if "text" not in part:
        raise InvalidRequest(f"{where}.text is missing", code="missing_required_parameter", param=f"{where}.text")
    if not isinstance(part["text"], str):
        raise _wrong_type(f"{where}.text", "a string", part["text"])
    return part["text"]


def _check_note(value: dict[str, Any], field: str, kind: type[Any], limit: int, where: str) -> None:
    """Check a field that changes nothing here: null, or of its kind and not too long."""
    note: Any = value.get(field)
    if note is None:
        return
    if not isinstance(note, kind):
        raise _wrong_type(f"{where}.{field}", _JSON_KINDS[kind], note)
    if len(note) > limit:
        raise _too_many(f"{where}.{field}", "entries", len(note), limit)
    if kind is list and not all(isinstance(entry, dict) for entry in note):
        raise InvalidRequest(f"{where}.{field} must be an array of objects", code="invalid_type", param=f"{where}.{field}")


def _tool_calls(calls: object, role: str, where: str) -> list[dict[str, Any]]:
    where = f"{where}.tool_calls"
    if calls is None or calls == []:
        return []
    if role != "assistant":
        raise InvalidRequest(f"{where}: only assistant messages have tool calls", param=where)
    if not isinstance(calls, list | tuple):
        raise _wrong_type(where, "an array of tool calls", calls)
    if len(calls) > MAX_TOOL_CALLS:
        raise InvalidRequest(
            f"{where} has {len(calls):,} entries; the limit is {MAX_TOOL_CALLS}", code="array_above_max_length", param=where
        )
    return [_tool_call(call, f"{where}[{j}]") for j, call in enumerate(calls)]


def _tool_call(call: object, where: str) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise _wrong_type(where, "an object with id, type and function", call)
    for field in call:
        if field not in _CALL_FIELDS:
            raise _unknown_field(where, field)
    index = call.get("index")
    if index is not None and (type(index) is not int or not 0 <= index <= MAX_INDEX):
        raise InvalidRequest(f"{where}.index must be an integer from 0 on", param=f"{where}.index")
    if call.get("type", "function") != "function":
        raise InvalidRequest(f'{where}.type must be "function"', param=f"{where}.type")
    call_id = call.get("id")
    if not isinstance(call_id, str) or not 0 < len(call_id) <= MAX_ID_CHARS:
        raise InvalidRequest(f"{where}.id must be a string of 1 to {MAX_ID_CHARS} characters", param=f"{where}.id")
    function = call.get("function")
    if not isinstance(function, dict):
        raise _wrong_type(f"{where}.function", "an object with name and arguments", function)
    for field in function:
        if field not in _FUNCTION_FIELDS:
            raise _unknown_field(f"{where}.function", field)
    arguments = function.get("arguments", "{}")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(arguments, str):
        raise _wrong_type(f"{where}.function.arguments", "a JSON text", arguments)
    name = _name(function.get("name"), f"{where}.function.name")
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _name(name: object, where: str) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidRequest(f"{where} must be 1 to 64 characters without spaces, line breaks and < | \\ / >", param=where)
    return name


def _wrong_type(where: str, wanted: str, value: object) -> InvalidRequest:
    kind = _JSON_KINDS.get(type(value), type(value).__name__)
    return InvalidRequest(f"{where} must be {wanted}, not {kind}", code="invalid_type", param=where)


def _too_many(where: str, what: str, count: int, limit: int) -> InvalidRequest:
    return InvalidRequest(f"{where} has {count:,} {what}; the limit is {limit:,}", code="array_above_max_length", param=where)


def _unknown_field(where: str, field: object) -> InvalidRequest:
    name = "".join(character for character in str(field)[:40] if character.isprintable())
    return InvalidRequest(f"{where} has an unknown field {name}", code="unknown_parameter", param=f"{where}.{name}")
