"""What response_format, Responses' text.format and structured_outputs may look like, for /openapi.json. server.structured reads them."""

from __future__ import annotations

from typing import Any

from octavo.constraints import (
    MAX_CHOICE_CHARS,
    MAX_CHOICES,
    MAX_GRAMMAR_CHARS,
    MAX_REGEX_CHARS,
    MAX_SCHEMA_BYTES,
    MAX_WHITESPACE_CHARS,
)

MAX_WORDS = 256  # of a schema, at its outermost level


def _closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_NULL = {"type": "null"}
_SCHEMA = {"type": "object", "maxProperties": MAX_WORDS}
_SCHEMA_OR_TEXT = {"anyOf": [_SCHEMA, {"type": "string", "maxLength": MAX_SCHEMA_BYTES}]}
_TEXT = {"type": "string", "maxLength": MAX_SCHEMA_BYTES}
_NAMED: dict[str, Any] = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "maxLength": 64},
    "description": {"anyOf": [_TEXT, _NULL]},
    "schema": _SCHEMA,
    "strict": {"type": ["boolean", "null"]},
}
_STRUCTURE = _closed({"begin": _TEXT, "schema": _SCHEMA, "end": _TEXT}, ["begin"])
_TAGS: dict[str, Any] = {
    "structures": {"type": "array", "items": _STRUCTURE, "minItems": 1, "maxItems": 128},
    "triggers": {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 16},
}


def _of_type(kind: str, more: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return _closed({"type": {"const": kind}} | more, ["type", *required])


_PLAIN = [_of_type("text", {}, []), _of_type("json_object", {}, [])]
RESPONSE_FORMAT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        *_PLAIN,
        _of_type("json_schema", {"json_schema": _closed(_NAMED, ["name", "schema"])}, ["json_schema"]),
        _of_type("structural_tag", _TAGS, ["structures", "triggers"]),
        _NULL,
    ]
}
TEXT_FORMAT_SCHEMA: dict[str, Any] = {"anyOf": [*_PLAIN, _of_type("json_schema", _NAMED, ["name", "schema"]), _NULL]}
STRUCTURED_OUTPUTS_SCHEMA: dict[str, Any] = {
    "anyOf": [
        _closed(
            {
                "json": {"anyOf": [*_SCHEMA_OR_TEXT["anyOf"], _NULL]},
                "regex": {"type": ["string", "null"], "maxLength": MAX_REGEX_CHARS},
                "choice": {
                    "type": ["array", "null"],
                    "items": {"type": "string", "minLength": 1, "maxLength": MAX_CHOICE_CHARS},
                    "minItems": 1,
                    "maxItems": MAX_CHOICES,
                },
                "grammar": {"type": ["string", "null"], "maxLength": MAX_GRAMMAR_CHARS},
                "json_object": {"enum": [True, None]},
                "structural_tag": {"anyOf": [*_SCHEMA_OR_TEXT["anyOf"], _NULL]},
                "disable_any_whitespace": {"type": ["boolean", "null"]},
                "disable_additional_properties": {"type": ["boolean", "null"]},
                "whitespace_pattern": {"type": ["string", "null"], "maxLength": MAX_WHITESPACE_CHARS},
            },
            [],
        ),
        _NULL,
    ]
}
