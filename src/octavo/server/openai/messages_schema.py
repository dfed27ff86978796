"""What a chat's messages and tools may look like, as JSON schemas for /openapi.json. text.conversation and text.tools check them."""

from __future__ import annotations

from typing import Any

from octavo.server.openai.values import MAX_PROMPT_CHARS
from octavo.text.conversation import MAX_ID_CHARS, MAX_PARTS, MAX_TOOL_CALLS
from octavo.text.tools import MAX_DESCRIPTION_CHARS, MAX_TOOLS

MAX_MESSAGES = 2048

_TEXT = {"type": "string", "maxLength": MAX_PROMPT_CHARS}
_NAME = {"type": "string", "minLength": 1, "maxLength": 64}
_ID = {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS}
_PARTS = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_PARTS,
    "items": {
        "type": "object",
        "properties": {"type": {"enum": ["text", "input_text", "output_text"]}, "text": _TEXT},
        "required": ["type", "text"],
        "additionalProperties": False,
    },
}
_CALLS = {
    "type": "array",
    "maxItems": MAX_TOOL_CALLS,
    "items": {
        "type": "object",
        "properties": {
            "id": _ID,
            "type": {"const": "function"},
            "function": {
                "type": "object",
                "properties": {"name": _NAME, "arguments": _TEXT},
                "required": ["name"],
                "additionalProperties": False,
            },
        },
        "required": ["id", "function"],
        "additionalProperties": False,
    },
}


def _message(roles: list[str], required: list[str], **fields: Any) -> dict[str, Any]:
    properties = {"role": {"enum": roles}, "content": {"anyOf": [_TEXT, _PARTS]}, "name": _NAME} | fields
    return {"type": "object", "properties": properties, "required": ["role", *required], "additionalProperties": False}


MESSAGES_SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_MESSAGES,
    "items": {
        "anyOf": [
            _message(["system", "developer", "user"], ["content"]),
            _message(["assistant"], ["content"], tool_calls=_CALLS, reasoning_content={"anyOf": [_TEXT, {"type": "null"}]}),
            _message(["tool"], ["content", "tool_call_id"], tool_call_id=_ID),
        ]
    },
}

FUNCTION_FIELDS: dict[str, Any] = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$", "maxLength": 64},
    "description": {"type": "string", "maxLength": MAX_DESCRIPTION_CHARS},
    "parameters": {"type": "object", "maxProperties": 64},
}


def tools_schema(fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the schema of an array of tools that have these fields."""
    tool = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
    return {"type": "array", "maxItems": MAX_TOOLS, "items": tool}


_FUNCTION = {"type": "object", "properties": FUNCTION_FIELDS, "required": ["name"], "additionalProperties": False}
TOOLS_SCHEMA: dict[str, Any] = {
    "anyOf": [tools_schema({"type": {"const": "function"}, "function": _FUNCTION}, ["type", "function"]), {"type": "null"}]
}
TOOL_CHOICE_SCHEMA: dict[str, Any] = {"enum": ["none", "auto", None]}
