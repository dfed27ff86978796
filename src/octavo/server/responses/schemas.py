"""The body of POST /v1/responses: closed, strict, every field bounded. What is known but not honoured is refused by name."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from octavo.params import MAX_LOGPROBS
from octavo.server.openai import values
from octavo.server.openai.format_schemas import STRUCTURED_OUTPUTS_SCHEMA, TEXT_FORMAT_SCHEMA
from octavo.server.openai.messages_schema import FUNCTION_FIELDS, allowed_tools_fields, tools_schema
from octavo.server.openai.schemas import MAX_NAME_CHARS, MAX_SALT_CHARS, Body, ReasoningEffort, Refused, Strict
from octavo.server.openai.values import MAX_METADATA, MAX_TEMPLATE_KWARGS, MAX_TOKENS
from octavo.server.responses.items import MAX_ITEMS
from octavo.text.tools import MAX_TOOLS

MAX_INPUT_CHARS = 8 << 20
MAX_ID_CHARS = 128

_INCLUDABLE = ("message.output_text.logprobs", "reasoning.encrypted_content")
_INPUT_SCHEMA = {
    "anyOf": [
        {"type": "string", "maxLength": MAX_INPUT_CHARS},
        {"type": "array", "items": {"type": "object", "maxProperties": 16}, "minItems": 1, "maxItems": MAX_ITEMS},
    ]
}
_TOOLS_SCHEMA = {"anyOf": [tools_schema({"type": {"const": "function"}} | FUNCTION_FIELDS, ["type", "name"]), {"type": "null"}]}
_NAMED_CHOICE = {
    "type": "object",
    "properties": {"type": {"const": "function"}, "name": FUNCTION_FIELDS["name"]},
    "required": ["type", "name"],
    "additionalProperties": False,
}
_ALLOWED_CHOICE = {
    "type": "object",
    "properties": {"type": {"const": "allowed_tools"}} | allowed_tools_fields(_NAMED_CHOICE),
    "required": ["type", "mode", "tools"],
    "additionalProperties": False,
}
_TOOL_CHOICE_SCHEMA = {"anyOf": [{"enum": ["none", "auto", "required", None]}, _NAMED_CHOICE, _ALLOWED_CHOICE]}
_INCLUDES = {"type": "array", "items": {"type": "string", "enum": list(_INCLUDABLE)}, "maxItems": 16}
_INCLUDE_SCHEMA = {"anyOf": [_INCLUDES, {"type": "null"}]}


def _input(value: Any) -> list[Any]:
    """A text or a list of items -> a list of items."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        raise PydanticCustomError("invalid_type", "input must be a string or an array of items")
    if not value:
        raise PydanticCustomError("invalid_value", "input is empty; send a text or at least one item")
    if len(value) > MAX_ITEMS:
        raise PydanticCustomError("array_above_max_length", f"input has too many items; the limit is {MAX_ITEMS:,}")
    return value


def _include(value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise PydanticCustomError("invalid_type", "include must be an array of strings")
    if not all(name in _INCLUDABLE for name in value):
        raise PydanticCustomError("unsupported_value", f"include takes {' and '.join(_INCLUDABLE)}; this server has none of the rest")
    return value


class Reasoning(Strict):
    """`summary` and `generate_summary`: reasoning is given as it is, never summed up, so they may only leave it to the server."""

    effort: ReasoningEffort | None = None
    summary: Literal["auto"] | None = None


class TextConfig(Strict):
    format: Annotated[Any, WithJsonSchema(TEXT_FORMAT_SCHEMA)] = None
    verbosity: Literal["medium"] | None = None


class ResponsesStreamOptions(Strict):
    include_obfuscation: Literal[False] | None = None


class ResponsesRequest(Body):
    """None: the model's own default, else OpenAI's."""

    refused: ClassVar[dict[str, Refused]] = {
        "background": Refused((False,), "asks for an answer while nobody waits, which this server does not give; leave it out"),
        "context_management": Refused(([],)),
        "conversation": Refused(reason="is not supported by this server; send previous_response_id, or the items themselves"),
        "max_tool_calls": Refused(reason="counts calls of built-in tools, of which this server has none; leave it out"),
        "prompt": Refused(),
        "prompt_cache_retention": Refused(("in_memory",)),
        "service_tier": Refused(("auto", "default")),
        "truncation": Refused(("disabled",), "asks for input to be cut, and this server never cuts it; leave it out"),
    }

    model: str = Field(max_length=MAX_NAME_CHARS)
    input: Annotated[list[Any], BeforeValidator(_input), WithJsonSchema(_INPUT_SCHEMA)] = Field(max_length=MAX_ITEMS)
    instructions: str | None = Field(None, max_length=MAX_INPUT_CHARS)
    previous_response_id: str | None = Field(None, max_length=MAX_ID_CHARS)
    store: bool | None = None
    stream: bool | None = None
    stream_options: ResponsesStreamOptions | None = None

    tools: Annotated[list[Any] | None, WithJsonSchema(_TOOLS_SCHEMA)] = Field(None, max_length=MAX_TOOLS)
    tool_choice: Annotated[Any, WithJsonSchema(_TOOL_CHOICE_SCHEMA)] = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextConfig | None = None
    structured_outputs: Annotated[Any, WithJsonSchema(STRUCTURED_OUTPUTS_SCHEMA)] = None
    include: Annotated[list[str], BeforeValidator(_include), WithJsonSchema(_INCLUDE_SCHEMA)] = Field(default=[], max_length=16)

    max_output_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    temperature: float | None = Field(None, ge=0.0, le=2.0, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0.0, le=1.0, allow_inf_nan=False)
    top_k: int | None = Field(None, ge=-1, le=MAX_TOKENS)
    min_p: float | None = Field(None, ge=0.0, le=1.0, allow_inf_nan=False)
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    ignore_eos: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    chat_template_kwargs: dict[str, Any] | None = Field(None, max_length=MAX_TEMPLATE_KWARGS)

    cache_salt: str | None = Field(None, min_length=1, max_length=MAX_SALT_CHARS, pattern=r"^[^@/\\\x00]*$")
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None, BeforeValidator(values.read_metadata)
    ] = Field(None, max_length=MAX_METADATA)
    user: str | None = Field(None, max_length=MAX_NAME_CHARS)
    prompt_cache_key: str | None = Field(None, max_length=MAX_NAME_CHARS)
    safety_identifier: str | None = Field(None, max_length=MAX_NAME_CHARS)
