"""What a request says that its answer must match: response_format, structured_outputs or calls of tools, as one constraint.

A constraint that is returned has been compiled once, in the sandbox, so that what cannot be held to is a 400 and reaches no engine. An
error names the field that the request used. Runs off the event loop.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from octavo.config.server_schema import StructuredOutputsConfig
from octavo.constraints import JSON_KINDS, StructuredOutputsParams, Thoughts
from octavo.errors import InvalidRequest
from octavo.grammar.library import require
from octavo.grammar.sandbox import GrammarSandbox
from octavo.parsers.reasoning import Thinking
from octavo.server.openai.schemas import ChatRequest, RequestBody
from octavo.text.tokenizer import Tokenizer

FORMAT_TYPES = ("text", "json_object", "json_schema", "structural_tag")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FIELDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_OPTIONS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")


def is_asked_for(body: RequestBody) -> bool:
    """Return whether the request may come to a constraint, and so wait for the sandbox. Its tools have not been checked yet."""
    if body.response_format is not None or body.structured_outputs is not None:
        return True
    if not isinstance(body, ChatRequest) or body.tools is None:
        return False
    return body.tool_choice not in (None, "auto", "none") or any(_is_strict(tool) for tool in body.tools)


def read_constraint(body: RequestBody, usual: StructuredOutputsConfig, sandbox: GrammarSandbox) -> StructuredOutputsParams | None:
    """Return what the answer must match, None for any text. Raises InvalidRequest."""
    asked, where = _read_format(body.response_format, "response_format")
    structured_outputs = body.structured_outputs
    if structured_outputs is None:
        if asked is None:
            return None
        asked = _as_usual(asked, usual)
        check_constraint(asked, sandbox, where)
        return asked
    if asked is not None:
        raise InvalidRequest(
            "response_format and structured_outputs both say what the answer must match; send one", param="structured_outputs"
        )
    if not isinstance(structured_outputs, dict):
        raise InvalidRequest("structured_outputs must be an object", code="invalid_type", param="structured_outputs")
    _check_fields(structured_outputs, (*_FIELDS, *_OPTIONS), "structured_outputs")
    require("structured_outputs")
    constraint = StructuredOutputsParams(**{name: value for name, value in structured_outputs.items() if value is not None})
    constraint = _as_usual(constraint, usual)
    check_constraint(constraint, sandbox)
    return constraint


def check_constraint(constraint: StructuredOutputsParams, sandbox: GrammarSandbox, param: str | None = None) -> None:
    """Raise InvalidRequest unless it compiles; the error is about the field `param`, by default the constraint's own."""
    try:
        sandbox.check(constraint)
    except InvalidRequest as error:
        raise _about(error, param) from None


def tools_constraint(grammar: str, sandbox: GrammarSandbox) -> StructuredOutputsParams:
    """Return the grammar that a request's tools come to as a constraint. Raises InvalidRequest."""
    try:
        constraint = StructuredOutputsParams(grammar=grammar)
    except InvalidRequest as error:
        raise _about(error, "tools") from None
    check_constraint(constraint, sandbox, "tools")
    return constraint


def behind_thoughts(
    constraint: StructuredOutputsParams, thinking: Thinking | None, tokenizer: Tokenizer, *, is_begun: bool
) -> StructuredOutputsParams:
    """Return the constraint for a model that may reason before it answers."""
    if thinking is None:
        return constraint
    marks = (tokenizer.control_tokens.get(mark, mark) for mark in (thinking.open, thinking.close))
    begin, end = marks
    return replace(constraint, thoughts=Thoughts(open=begin, close=end, is_begun=is_begun))


def _is_strict(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and function.get("strict") is True


def _as_usual(constraint: StructuredOutputsParams, usual: StructuredOutputsConfig) -> StructuredOutputsParams:
    """Return the constraint with the operator's settings for JSON where the request has none of its own."""
    if constraint.kind not in JSON_KINDS:
        return constraint
    return replace(
        constraint,
        disable_any_whitespace=constraint.disable_any_whitespace or (usual.disable_any_whitespace and not constraint.whitespace_pattern),
        disable_additional_properties=constraint.disable_additional_properties or usual.disable_additional_properties,
    )


def _read_format(value: Any, param: str) -> tuple[StructuredOutputsParams | None, str]:
    """Return what response_format asks for, and the field in which it says so."""
    if value is None:
        return None, param
    if not isinstance(value, dict):
        raise InvalidRequest(f'{param} must be an object such as {{"type": "json_object"}}', code="invalid_type", param=param)
    kind = value.get("type")
    if not isinstance(kind, str):
        raise InvalidRequest(f"{param}.type must be one of {', '.join(FORMAT_TYPES)}", code="invalid_type", param=f"{param}.type")
    if kind not in FORMAT_TYPES:
        raise InvalidRequest(f"{param}.type must be one of {', '.join(FORMAT_TYPES)}", param=f"{param}.type")
    if kind == "text":
        _check_fields(value, ("type",), param)
        return None, param
    require(param)
    if kind == "json_object":
        _check_fields(value, ("type",), param)
        return StructuredOutputsParams(json_object=True), param
    if kind == "structural_tag":
        _check_fields(value, ("type", "structures", "triggers"), param)
        return _made(param, structural_tag={name: one for name, one in value.items() if name != "type"}), param
    _check_fields(value, ("type", "json_schema"), param)
    return _read_schema(value.get("json_schema"), f"{param}.json_schema"), f"{param}.json_schema.schema"


def _read_schema(value: Any, param: str) -> StructuredOutputsParams:
    if value is None:
        raise InvalidRequest(f"missing required parameter: {param}", code="missing_required_parameter", param=param)
    if not isinstance(value, dict):
        raise InvalidRequest(f"{param} must be an object", code="invalid_type", param=param)
    _check_fields(value, ("name", "description", "schema", "strict"), param)
    for name in ("name", "schema"):
        if value.get(name) is None:
            raise InvalidRequest(f"missing required parameter: {param}.{name}", code="missing_required_parameter", param=f"{param}.{name}")
    if not isinstance(value["name"], str) or _NAME.fullmatch(value["name"]) is None:
        raise InvalidRequest(f"{param}.name must be 1 to 64 letters, digits, _ or -", param=f"{param}.name")
    if not isinstance(value.get("description"), str | None) or not isinstance(value.get("strict"), bool | None):
        raise InvalidRequest(f"{param}: description must be a string, strict true or false", code="invalid_type", param=param)
    return _made(f"{param}.schema", json=value["schema"])


def _made(param: str, **kind: Any) -> StructuredOutputsParams:
    try:
        return StructuredOutputsParams(**kind)
    except InvalidRequest as error:
        raise _about(error, param) from None


def _about(error: InvalidRequest, param: str | None) -> InvalidRequest:
    """Return the error in terms of the field that the request used."""
    if param is None or error.param is None:
        return error
    return InvalidRequest(error.message.replace(error.param, param, 1), code=error.code, param=param)


def _check_fields(value: dict[str, Any], known: tuple[str, ...], param: str) -> None:
    unknown = next((name for name in value if name not in known), None)
    if unknown is not None:
        shown = unknown if isinstance(unknown, str) and unknown.isascii() and unknown.isidentifier() and len(unknown) <= 64 else "a field"
        raise InvalidRequest(f"{param} has no field {shown}", code="unknown_parameter", param=param)
