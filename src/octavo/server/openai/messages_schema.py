"""What a chat's messages and tools may look like, as JSON schemas for /openapi.json. text.conversation and text.tools check them."""

from __future__ import annotations

from typing import Any

from octavo.server.openai.values import MAX_PROMPT_CHARS
from octavo.text.conversation import ABSENT_FIELDS, MAX_ID_CHARS, MAX_INDEX, MAX_NOTES, MAX_PARTS, MAX_TOOL_CALLS, NAME_PATTERN
from octavo.text.tools import MAX_DESCRIPTION_CHARS, MAX_SCHEMA_WORDS, MAX_TOOLS

MAX_MESSAGES = 2048

Schema = dict[str, Any]


def _closed(required: list[str], properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_NULL: Schema = {"type": "null"}
_TEXT: Schema = {"type": "string", "maxLength": MAX_PROMPT_CHARS}
_NAME: Schema = {"type": "string", "pattern": NAME_PATTERN, "maxLength": 64}
_ID: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS}
_NOTES: Schema = _or_null({"type": "array", "maxItems": MAX_NOTES, "items": {"type": "object", "maxProperties": MAX_NOTES}})
_PART = _closed(
    ["type", "text"],
    {
        "type": {"enum": ["text", "input_text", "output_text"]},
        "text": _TEXT,
        "annotations": _NOTES,
        "logprobs": _NOTES,
        "cache_control": _or_null({"type": "object", "maxProperties": 16}),
    },
)
_CONTENT: Schema = {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "maxItems": MAX_PARTS, "items": _PART}]}
_ARGUMENTS: Schema = {"anyOf": [_TEXT, {"type": "object", "maxProperties": MAX_NOTES}]}
_CALL = _closed(
    ["id", "function"],
    {
        "id": _ID,
        "type": {"const": "function"},
        "index": _or_null({"type": "integer", "minimum": 0, "maximum": MAX_INDEX}),
        "function": _closed(["name"], {"name": _NAME, "arguments": _ARGUMENTS}),
    },
)
_CALLS: Schema = {"type": "array", "maxItems": MAX_TOOL_CALLS, "items": _CALL}
_NO_CALLS: Schema = {"enum": [[], None]}


def _message(roles: list[str], required: list[str], **fields: Schema) -> Schema:
    properties = {
        "role": {"enum": roles},
        "content": _CONTENT,
        "name": _or_null(_NAME),
        "reasoning_content": _or_null(_TEXT),
        "reasoning": _or_null(_TEXT),
        "annotations": _NOTES,
        "tool_calls": _NO_CALLS,
        "tool_call_id": _NULL,
    }
    return _closed(["role", *required], properties | dict.fromkeys(ABSENT_FIELDS, _NULL) | fields)


MESSAGES_SCHEMA: Schema = {
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_MESSAGES,
    "items": {
        "anyOf": [
            _message(["system", "developer", "user"], ["content"]),
            _message(["assistant"], ["content"], tool_calls=_or_null(_CALLS)),
            _message(["assistant"], ["tool_calls"], content=_or_null(_CONTENT), tool_calls=_CALLS | {"minItems": 1}),
            _message(["tool"], ["content", "tool_call_id"], tool_call_id=_ID),
        ]
    },
}

FUNCTION_FIELDS: dict[str, Any] = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$", "maxLength": 64},
    "description": _or_null({"type": "string", "maxLength": MAX_DESCRIPTION_CHARS}),
    "parameters": _or_null({"type": "object", "maxProperties": MAX_SCHEMA_WORDS}),
    "strict": {"enum": [True, False, None]},
}


def tools_schema(fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the schema of an array of tools that have these fields."""
    tool = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
    return {"type": "array", "maxItems": MAX_TOOLS, "items": tool}


_FUNCTION = {"type": "object", "properties": FUNCTION_FIELDS, "required": ["name"], "additionalProperties": False}
TOOLS_SCHEMA: dict[str, Any] = {
    "anyOf": [tools_schema({"type": {"const": "function"}, "function": _FUNCTION}, ["type", "function"]), {"type": "null"}]
}
_NAMED_CHOICE = _closed(
    ["type", "function"], {"type": {"const": "function"}, "function": _closed(["name"], {"name": FUNCTION_FIELDS["name"]})}
)


def allowed_tools_fields(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with which a choice of tools says which may be called, each as `tool` describes."""
    return {"mode": {"enum": ["auto", "required"]}, "tools": {"type": "array", "items": tool, "minItems": 1, "maxItems": MAX_TOOLS}}


_ALLOWED_CHOICE = _closed(
    ["type", "allowed_tools"],
    {"type": {"const": "allowed_tools"}, "allowed_tools": _closed(["mode", "tools"], allowed_tools_fields(_NAMED_CHOICE))},
)
TOOL_CHOICE_SCHEMA: dict[str, Any] = {"anyOf": [{"enum": ["none", "auto", "required", None]}, _NAMED_CHOICE, _ALLOWED_CHOICE]}
