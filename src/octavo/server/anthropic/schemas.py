"""The bodies of POST /v1/messages and /v1/messages/count_tokens: closed, strict, every field bounded.

`cache_control` is taken wherever Anthropic has it: the prefix cache is always on, and needs no marks.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from octavo.params import MAX_STOP_STRING_CHARS, MAX_STOP_STRINGS
from octavo.server.openai.format_schemas import MAX_WORDS
from octavo.server.openai.messages_schema import FUNCTION_FIELDS, MAX_MESSAGES, tools_schema
from octavo.server.openai.schemas import MAX_NAME_CHARS, MAX_SALT_CHARS, Body, Refused, Strict
from octavo.server.openai.values import MAX_TEMPLATE_KWARGS, MAX_TOKENS
from octavo.text.tools import MAX_TOOLS

MAX_BLOCKS = 1024
MAX_CACHE_CONTROL = 16  # entries

_OBJECTS = {"type": "array", "items": {"type": "object", "maxProperties": 32}}
_SCHEMA_FORMAT = {
    "type": "object",
    "properties": {"type": {"const": "json_schema"}, "schema": {"type": "object", "maxProperties": MAX_WORDS}},
    "required": ["type", "schema"],
    "additionalProperties": False,
}
_FORMAT_SCHEMA = {"anyOf": [_SCHEMA_FORMAT, {"type": "null"}]}
_SYSTEM_SCHEMA = {"anyOf": [{"type": "string", "maxLength": 8 << 20}, _OBJECTS | {"maxItems": MAX_BLOCKS}]}
_TOOL_FIELDS = {
    "type": {"enum": ["custom", None]},
    "name": FUNCTION_FIELDS["name"],
    "description": FUNCTION_FIELDS["description"],
    "input_schema": FUNCTION_FIELDS["parameters"]["anyOf"][0],
    "strict": FUNCTION_FIELDS["strict"],
    "cache_control": {"anyOf": [{"type": "object", "maxProperties": MAX_CACHE_CONTROL}, {"type": "null"}]},
}
TOOL_FIELDS = tuple(_TOOL_FIELDS)
_TOOLS_SCHEMA = {"anyOf": [tools_schema(_TOOL_FIELDS, ["name", "input_schema"]), {"type": "null"}]}


class CacheControl(Strict):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Metadata(Strict):
    user_id: str | None = Field(None, max_length=512)


class Thinking(Strict):
    """`budget_tokens` is a target and no limit, as with Anthropic: how much is thought, the model decides."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(None, ge=1024, le=MAX_TOKENS)
    display: Literal["summarized", "omitted"] | None = None


class OutputConfig(Strict):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: Annotated[Any, WithJsonSchema(_FORMAT_SCHEMA)] = None


class ToolChoice(Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = Field(None, max_length=MAX_NAME_CHARS)
    disable_parallel_tool_use: bool | None = None


class CountTokensRequest(Body):
    """POST /v1/messages/count_tokens: what makes the prompt."""

    refused: ClassVar[dict[str, Refused]] = {"mcp_servers": Refused(([],)), "speed": Refused(("standard",))}

    model: str = Field(max_length=MAX_NAME_CHARS)
    messages: Annotated[list[Any], WithJsonSchema(_OBJECTS | {"minItems": 1, "maxItems": MAX_MESSAGES})] = Field(
        min_length=1, max_length=MAX_MESSAGES
    )
    system: Annotated[Any, WithJsonSchema(_SYSTEM_SCHEMA)] = None
    tools: Annotated[list[Any] | None, WithJsonSchema(_TOOLS_SCHEMA)] = Field(None, max_length=MAX_TOOLS)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(None, max_length=MAX_TEMPLATE_KWARGS)


class MessagesRequest(CountTokensRequest):
    """POST /v1/messages."""

    refused: ClassVar[dict[str, Refused]] = CountTokensRequest.refused | {
        "container": Refused(),
        "context_management": Refused(),
        "inference_geo": Refused(),
        "service_tier": Refused(("auto", "standard_only")),
    }

    max_tokens: int = Field(ge=1, le=MAX_TOKENS)
    stop_sequences: list[Annotated[str, Field(min_length=1, max_length=MAX_STOP_STRING_CHARS)]] | None = Field(
        None, max_length=MAX_STOP_STRINGS
    )
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0.0, le=2.0, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0.0, le=1.0, allow_inf_nan=False)
    top_k: int | None = Field(None, ge=-1, le=MAX_TOKENS)
    metadata: Metadata | None = None
    cache_salt: str | None = Field(None, min_length=1, max_length=MAX_SALT_CHARS, pattern=r"^[^@/\\\x00]*$")
