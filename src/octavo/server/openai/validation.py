"""A JSON object into a request schema, and every mistake into OpenAI's code, `param` and a catalogued message.

The offending value is never quoted: the field's name, the limit and what was expected say enough.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from octavo.errors import InvalidRequest, RequestError
from octavo.server.openai.schemas import Body, RequestBody

Shape = TypeVar("Shape", bound=Body)

_EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a string",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
MAX_SHOWN_NAME = 64
MAX_SHOWN_NAMES = 16
OWN_CODES = ("invalid_type", "invalid_value", "array_above_max_length", "unsupported_value")  # raised by the schemas' own validators


def parse_body(schema: type[Shape], body: dict[str, Any], *, ignore_unknown: bool = False) -> tuple[Shape, list[str]]:
    """Return `body` as a `schema`, and the names of its unknown fields, which must be none unless they are to be ignored.

    Raises InvalidRequest for the first thing that is wrong with it.
    """
    asked = dict(body)
    for name, refused in schema.refused.items():
        value = asked.pop(name, None)
        if value is not None and not any(_is_same(value, neutral) for neutral in refused.neutral):
            raise InvalidRequest(f"{name} {refused.reason}", code="unsupported_parameter", param=name)
    ignored = [name for name in asked if name not in schema.model_fields] if ignore_unknown else []
    for name in ignored:
        del asked[name]
    try:
        return schema.model_validate(asked), ignored
    except ValidationError as error:
        raise as_invalid_request(schema, error.errors(include_url=False)[0]) from None


def _is_same(value: Any, neutral: Any) -> bool:
    """JSON's equality: 1 is 1.0, true is not 1."""
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)


def ignored_fields_header(names: list[str]) -> dict[str, str]:
    """Return the header that tells which fields were not looked at; no header when there are none."""
    shown = [name for name in names if is_plain(name)][:MAX_SHOWN_NAMES]
    others = len(names) - len(shown)
    text = ", ".join([*shown, *([f"{others} more"] if others else [])])
    return {"x-ignored-fields": text} if names else {}


def is_plain(name: str) -> bool:
    """Whether a field's name may be repeated in messages and headers."""
    return name.isascii() and name.isidentifier() and len(name) <= MAX_SHOWN_NAME


def check_stream_options(body: RequestBody) -> None:
    """Raise InvalidRequest when stream_options come without stream."""
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options needs stream true", param="stream_options")


def wants_usage(body: RequestBody) -> bool:
    """Return whether the answer tells its usage: a streamed one only when asked."""
    return not body.stream or (body.stream_options is not None and bool(body.stream_options.include_usage))


def wants_running_usage(body: RequestBody) -> bool:
    """Return whether every chunk tells the usage so far."""
    return body.stream_options is not None and bool(body.stream_options.include_usage and body.stream_options.continuous_usage_stats)


def as_invalid_request(schema: type[BaseModel], detail: ErrorDetails) -> RequestError:
    """Return one Pydantic error as ours."""
    kind, location, context = detail["type"], detail["loc"], detail.get("ctx", {})
    param = _dotted(location)
    if kind in OWN_CODES:
        return InvalidRequest(detail["msg"], code=kind, param=param)
    if kind == "missing":
        return InvalidRequest(f"missing required parameter: {param}", code="missing_required_parameter", param=param)
    if kind == "unknown_parameter":
        return _unknown(schema, param, context["name"])
    if kind in _EXPECTED:
        if kind.startswith("int") and _is_huge(detail["input"]):
            above = detail["input"] > 0
            return InvalidRequest(
                f"{param} is out of range", code="integer_above_max_value" if above else "integer_below_min_value", param=param
            )
        return InvalidRequest(f"{param} must be {_EXPECTED[kind]}", code="invalid_type", param=param)
    if kind in ("greater_than_equal", "greater_than"):
        low = context["ge"] if kind == "greater_than_equal" else context["gt"]
        words = "at least" if kind == "greater_than_equal" else "more than"
        return InvalidRequest(f"{param} must be {words} {low:,}", code=f"{_number(low)}_below_min_value", param=param)
    if kind == "less_than_equal":
        return InvalidRequest(f"{param} must be at most {context['le']:,}", code=f"{_number(context['le'])}_above_max_value", param=param)
    if kind == "finite_number":
        return InvalidRequest(f"{param} must be a finite number", param=param)
    if kind == "too_long":
        return InvalidRequest(
            f"{param} has too many items; the limit is {context['max_length']:,}", code="array_above_max_length", param=param
        )
    if kind == "too_short":
        return InvalidRequest(f"{param} is empty", code="empty_array", param=param)
    if kind == "string_too_long":
        return InvalidRequest(
            f"{param} is too long; the limit is {context['max_length']:,} characters", code="string_above_max_length", param=param
        )
    if kind == "string_too_short":
        return InvalidRequest(f"{param} is empty", param=param)
    if kind == "string_pattern_mismatch":
        return InvalidRequest(f"{param} has a character that it may not have; it must match {context['pattern']}", param=param)
    if kind == "literal_error":
        return InvalidRequest(f"{param} must be {'false' if context['expected'] == 'False' else context['expected']}", param=param)
    return InvalidRequest(f"{param} is not valid", param=param)


def _unknown(schema: type[BaseModel], parent: str, name: str) -> InvalidRequest:
    """Name the field and its nearest known one; inside another field, `param` is that field."""
    import difflib  # no error, no need

    shown = name if is_plain(name) else "a field"
    if parent:
        return InvalidRequest(f"{parent} has no field {shown}", code="unknown_parameter", param=parent)
    near = difflib.get_close_matches(name[:MAX_SHOWN_NAME], schema.model_fields, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return InvalidRequest(f"unknown parameter: {shown}{hint}", code="unknown_parameter", param=shown if shown == name else None)


def _dotted(location: tuple[str | int, ...]) -> str:
    """('messages', 0, 'role') -> messages[0].role"""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _number(limit: float) -> str:
    return "integer" if isinstance(limit, int) else "decimal"


def _is_huge(value: Any) -> bool:
    """The JSON reader gives integers beyond 64 bits as floats."""
    return isinstance(value, float) and abs(value) >= 1 << 63
