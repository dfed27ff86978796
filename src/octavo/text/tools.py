"""`validate_tools`: a request's tools from plain JSON values to one clean shape, as chat templates read it.

What comes out: a list of {"type": "function", "function": {"name", "description", "parameters"}}, the last two only where
given. The parameters are a JSON schema, which only the model reads: its shape, size and depth are checked, and the
keywords whose types everybody agrees on.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
import orjson

from octavo.errors import InvalidRequest

MAX_TOOLS = 128
MAX_DESCRIPTION_CHARS = 32_768
MAX_SCHEMA_BYTES = 131_072
MAX_SCHEMA_DEPTH = 32
MAX_SCHEMA_WORDS = 64  # at the outermost level
MAX_SCHEMAS_BYTES = 1 << 20  # of all tools together
MAX_PATTERN_CHARS = 4096

Tool = dict[str, Any]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA_MAPS = ("properties", "$defs", "definitions", "patternProperties")
_SCHEMAS = ("items", "additionalProperties", "not")


def validate_tools(tools: object) -> list[Tool]:
    """Return the tools in their clean shape; raises InvalidRequest whose `param` says where (tools[2].function.name)."""
    if not isinstance(tools, list):
        raise InvalidRequest("tools must be an array", code="invalid_type", param="tools")
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest(f"tools has {len(tools):,} items; the limit is {MAX_TOOLS}", code="array_above_max_length", param="tools")
    clean = []
    budget = MAX_SCHEMAS_BYTES
    for i, tool in enumerate(tools):
        clean.append(_tool(tool, f"tools[{i}]"))
        budget -= len(orjson.dumps(clean[-1]["function"].get("parameters")))
        if budget < 0:
            raise InvalidRequest(
                f"the parameters of tools take more than {MAX_SCHEMAS_BYTES:,} bytes", code="schema_too_complex", param="tools"
            )
    names = [tool["function"]["name"] for tool in clean]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InvalidRequest(f"tools[{i}] has the same name as an earlier tool", param=f"tools[{i}].function.name")
    return clean


class ToolChoice(msgspec.Struct, frozen=True):
    """`allowed`: the names of the tools that may be called, None for all; of the kind function the one that must be."""

    kind: Literal["none", "auto", "required", "function"]
    allowed: frozenset[str] | None = None

    def allows(self, tool: Tool) -> bool:
        return self.allowed is None or tool["function"]["name"] in self.allowed


def read_tool_choice(choice: object, tools: list[Tool]) -> ToolChoice:
    """Return what may be called: by default anything, if there are tools. Raises InvalidRequest."""
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind is None and choice is None:
        return ToolChoice("auto" if tools else "none")
    if kind == "allowed_tools" and isinstance(choice, dict):
        return _read_allowed(choice, tools)
    if kind == "function" and isinstance(choice, dict):
        fields = _object(choice, "tool_choice", ("type", "function"))
        return ToolChoice("function", frozenset({_name_of(fields.get("function"), "tool_choice.function", tools)}))
    if choice == "none":
        return ToolChoice("none")
    if choice == "auto":
        return ToolChoice("auto" if tools else "none")
    if choice != "required":
        raise InvalidRequest(
            'tool_choice must be "none", "auto", "required", {"type": "function", ...} or {"type": "allowed_tools", ...}',
            param="tool_choice",
        )
    if not tools:
        raise InvalidRequest("tool_choice needs tools", param="tool_choice")
    return ToolChoice("required")


def _read_allowed(choice: dict[str, Any], tools: list[Tool]) -> ToolChoice:
    where = "tool_choice.allowed_tools"
    fields = _object(_object(choice, "tool_choice", ("type", "allowed_tools")).get("allowed_tools"), where, ("mode", "tools"))
    mode, allowed = fields.get("mode"), fields.get("tools")
    if mode not in ("auto", "required"):
        raise InvalidRequest('the mode of tool_choice allowed_tools must be "auto" or "required"', param="tool_choice")
    if not isinstance(allowed, list):
        raise InvalidRequest("the tools of tool_choice allowed_tools must be an array", code="invalid_type", param="tool_choice")
    if not 1 <= len(allowed) <= MAX_TOOLS:
        raise InvalidRequest(
            f"tool_choice allowed_tools has {len(allowed):,} tools; it takes 1 to {MAX_TOOLS}; "
            'to allow none send "none", to allow all send the mode itself',
            param="tool_choice",
        )
    names = set()
    for number, tool in enumerate(allowed):
        place = f"{where}.tools[{number}]"
        known = _object(tool, place, ("type", "function"))
        if known.get("type") != "function":
            raise InvalidRequest(f'{place}.type must be "function", the only kind of tool that this server has', param="tool_choice")
        names.add(_name_of(known.get("function"), f"{place}.function", tools))
    return ToolChoice("auto" if mode == "auto" else "required", frozenset(names))


def _name_of(function: object, where: str, tools: list[Tool]) -> str:
    """Return the name in {"name": ...}, which is that of one of these tools."""
    name = _object(function, where, ("name",)).get("name")
    if not isinstance(name, str) or name not in [tool["function"]["name"] for tool in tools]:
        raise InvalidRequest("tool_choice names no tool of this request", param="tool_choice")
    return name


def strict_names(tools: list[Any]) -> set[str]:
    """Return the names of those of `tools`, as they came and are valid, whose arguments must match their schema."""
    return {tool["function"]["name"] for tool in tools if tool["function"].get("strict")}


def _tool(tool: object, where: str) -> Tool:
    fields = _object(tool, where, ("type", "function"))
    if fields.get("type") != "function":
        raise InvalidRequest(f'{where}.type must be "function", the only kind of tool that this server has', param=f"{where}.type")
    return {"type": "function", "function": _function(fields.get("function"), f"{where}.function")}


def _function(function: object, where: str) -> Tool:
    fields = _object(function, where, ("name", "description", "parameters", "strict"))
    name = fields.get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidRequest(f"{where}.name must be 1 to 64 letters, digits, _ . or -", param=f"{where}.name")
    clean: Tool = {"name": name}
    description = fields.get("description")
    if description is not None:
        if not isinstance(description, str):
            raise InvalidRequest(f"{where}.description must be a string", code="invalid_type", param=f"{where}.description")
        if len(description) > MAX_DESCRIPTION_CHARS:
            raise InvalidRequest(
                f"{where}.description has {len(description):,} characters; the limit is {MAX_DESCRIPTION_CHARS:,}",
                code="string_above_max_length",
                param=f"{where}.description",
            )
        clean["description"] = description
    if fields.get("parameters") is not None:
        check_schema(fields["parameters"], f"{where}.parameters")
        clean["parameters"] = fields["parameters"]
    if not isinstance(fields.get("strict"), bool | None):
        raise InvalidRequest(f"{where}.strict must be true or false", code="invalid_type", param=f"{where}.strict")
    return clean


def check_schema(schema: object, where: str) -> None:
    """Raise InvalidRequest unless `schema` is an object that can be a JSON schema of an object, not too large and not too deep."""
    if not isinstance(schema, dict):
        raise _no_schema(where, "it must be an object")
    try:
        size = len(orjson.dumps(schema))
    except orjson.JSONEncodeError:
        raise InvalidRequest(f"{where} is nested too deep", code="schema_too_complex", param=where) from None
    if len(schema) > MAX_SCHEMA_WORDS:
        raise InvalidRequest(f"{where} has more than {MAX_SCHEMA_WORDS} keywords", code="schema_too_complex", param=where)
    if size > MAX_SCHEMA_BYTES:
        raise InvalidRequest(f"{where} takes more than {MAX_SCHEMA_BYTES:,} bytes", code="schema_too_complex", param=where)
    if schema.get("type", "object") != "object":
        raise _no_schema(where, "its type must be object")
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_SCHEMA_DEPTH:
            raise InvalidRequest(f"{where} is nested deeper than {MAX_SCHEMA_DEPTH} levels", code="schema_too_complex", param=where)
        _check_keywords(value, where)
        waiting += ((inner, depth + 1) for inner in _inner_schemas(value, where))


def _check_keywords(schema: dict[str, Any], where: str) -> None:
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if not isinstance(kind, str) or kind not in _TYPES:
            raise _no_schema(where, f"a type must be one of {', '.join(sorted(_TYPES))}")
    pattern = schema.get("pattern", "")
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_CHARS:
        raise _no_schema(where, f"a pattern must be a string of at most {MAX_PATTERN_CHARS:,} characters")
    for word in ("enum", "required"):
        if not isinstance(schema.get(word, []), list):
            raise _no_schema(where, f"{word} must be an array")


def _inner_schemas(schema: dict[str, Any], where: str) -> list[dict[str, Any]]:
    inner: list[Any] = []
    for word in _SCHEMA_MAPS:
        if not isinstance(schema.get(word, {}), dict):
            raise _no_schema(where, f"{word} must be an object")
        inner += schema.get(word, {}).values()
    for word in _SCHEMA_LISTS:
        if not isinstance(schema.get(word, []), list):
            raise _no_schema(where, f"{word} must be an array")
        inner += schema.get(word, [])
    inner += [schema[word] for word in _SCHEMAS if word in schema]
    schemas = [value for value in inner if not isinstance(value, bool)]
    if not all(isinstance(value, dict) for value in schemas):
        raise _no_schema(where, "what stands for a schema in it must be an object or a boolean")
    return schemas


def _no_schema(where: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"{where} is no JSON schema: {reason}", code="invalid_json_schema", param=where)


def _object(value: object, where: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{where} must be an object", code="invalid_type", param=where)
    for field in value:
        if field not in known:
            name = "".join(character for character in str(field)[:40] if character.isprintable())
            raise InvalidRequest(f"{where} has an unknown field {name}", code="unknown_parameter", param=f"{where}.{name}")
    return value
