"""The request bodies of the OpenAI API: closed, strict (no coercion), every field bounded.

A field that is known but not honoured stands in its schema's `refused` with the values of it that ask for nothing: those
pass, null always does, others are refused by name. Messages and chat_template_kwargs are checked by text.chat.ChatTemplate,
tools and tool_choice by text.tools, response_format and structured_outputs by server.structured.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from octavo.params import (
    MAX_ALLOWED_TOKEN_IDS,
    MAX_BAD_WORD_CHARS,
    MAX_BAD_WORDS,
    MAX_DRY_BREAKER_CHARS,
    MAX_DRY_BREAKERS,
    MAX_LOGIT_BIAS,
    MAX_LOGPROBS,
    MAX_N,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    MIN_REPETITION_PENALTY,
)
from octavo.server.openai import values
from octavo.server.openai.format_schemas import RESPONSE_FORMAT_SCHEMA, STRUCTURED_OUTPUTS_SCHEMA
from octavo.server.openai.messages_schema import MAX_MESSAGES, MESSAGES_SCHEMA, TOOL_CHOICE_SCHEMA, TOOLS_SCHEMA
from octavo.server.openai.values import MAX_METADATA, MAX_PROMPT_CHARS, MAX_PROMPTS, MAX_TEMPLATE_KWARGS, MAX_TOKENS
from octavo.text.tools import MAX_TOOLS

MAX_NAME_CHARS = 256
MAX_SALT_CHARS = 128
MAX_DETOKENIZED = 1 << 20

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
TokenId = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


class Refused(msgspec.Struct, frozen=True):
    """A field that is not honoured: which values of it, beside null, ask for nothing, and what to say of the others."""

    neutral: tuple[Any, ...] = ()
    reason: str = "is not supported by this server; leave it out"


GUIDED = Refused(reason="is the old name of a field of structured_outputs; send that")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)  # see build_checks

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, value: Any) -> Any:
        """Stop at the first unknown field: Pydantic would list a million of them."""
        if isinstance(value, dict):
            unknown = next((name for name in value if name not in cls.model_fields), None)
            if unknown is not None:
                raise PydanticCustomError("unknown_parameter", "unknown field", {"name": unknown})
        return value


class Body(Strict):
    """Any request body. `names_served_model`: its field model, if it has one, is a name under which the model is served."""

    refused: ClassVar[dict[str, Refused]] = {}
    names_served_model: ClassVar[bool] = True


class StreamOptions(Strict):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: Literal[False] | None = None


class RequestBody(Body):
    """The fields that chat and text completions share. None: the model's own default, else OpenAI's."""

    refused: ClassVar[dict[str, Refused]] = {
        "guided_choice": GUIDED,
        "guided_grammar": GUIDED,
        "guided_json": GUIDED,
        "guided_regex": GUIDED,
        "length_penalty": Refused((1.0,)),
        "service_tier": Refused(("auto", "default")),
        "spaces_between_special_tokens": Refused((True,)),
        "store": Refused((False,), "asks for the answer to be stored, and this server stores none; leave it out"),
        "use_beam_search": Refused((False,)),
    }

    model: str = Field(max_length=MAX_NAME_CHARS)
    n: int | None = Field(None, ge=1, le=MAX_N)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stream_interval: int | None = Field(None, ge=1, le=MAX_TOKENS)
    priority: int | None = Field(None, ge=-(2**63), le=2**63 - 1)

    min_tokens: int | None = Field(None, ge=0, le=MAX_TOKENS)
    stop: Annotated[list[str], BeforeValidator(values.read_stop), WithJsonSchema(values.STOP_SCHEMA)] = Field(
        default=[], max_length=MAX_STOP_STRINGS
    )
    stop_token_ids: list[TokenId] | None = Field(None, max_length=MAX_STOP_TOKEN_IDS)
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None

    temperature: float | None = Field(None, ge=0.0, le=2.0, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0.0, le=1.0, allow_inf_nan=False)
    top_k: int | None = Field(None, ge=-1, le=MAX_TOKENS)
    min_p: float | None = Field(None, ge=0.0, le=1.0, allow_inf_nan=False)
    typical_p: float | None = Field(None, gt=0.0, le=1.0, allow_inf_nan=False)
    top_n_sigma: float | None = Field(None, ge=0.0, le=100.0, allow_inf_nan=False)
    xtc_probability: float | None = Field(None, ge=0.0, le=1.0, allow_inf_nan=False)
    xtc_threshold: float | None = Field(None, ge=0.0, le=1.0, allow_inf_nan=False)
    presence_penalty: float | None = Field(None, ge=-2.0, le=2.0, allow_inf_nan=False)
    frequency_penalty: float | None = Field(None, ge=-2.0, le=2.0, allow_inf_nan=False)
    repetition_penalty: float | None = Field(None, ge=MIN_REPETITION_PENALTY, le=100.0, allow_inf_nan=False)
    dry_multiplier: float | None = Field(None, ge=0.0, le=100.0, allow_inf_nan=False)
    dry_base: float | None = Field(None, ge=1.0, le=100.0, allow_inf_nan=False)
    dry_allowed_length: int | None = Field(None, ge=1, le=1 << 20)
    dry_penalty_last_n: int | None = Field(None, ge=-1, le=MAX_TOKENS)
    dry_sequence_breakers: list[Annotated[str, Field(min_length=1, max_length=MAX_DRY_BREAKER_CHARS)]] | None = Field(
        None, max_length=MAX_DRY_BREAKERS
    )
    logit_bias: Annotated[dict[int, float], BeforeValidator(values.read_logit_bias), WithJsonSchema(values.LOGIT_BIAS_SCHEMA)] = Field(
        default={}, max_length=MAX_LOGIT_BIAS
    )
    allowed_token_ids: list[TokenId] | None = Field(None, min_length=1, max_length=MAX_ALLOWED_TOKEN_IDS)
    bad_words: list[Annotated[str, Field(min_length=1, max_length=MAX_BAD_WORD_CHARS)]] | None = Field(None, max_length=MAX_BAD_WORDS)
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)

    echo: bool | None = None
    add_special_tokens: bool | None = None
    skip_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = Field(None, ge=-1, le=MAX_TOKENS)
    truncation_side: Literal["left", "right"] | None = None
    prompt_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    response_format: Annotated[Any, WithJsonSchema(RESPONSE_FORMAT_SCHEMA)] = None
    structured_outputs: Annotated[Any, WithJsonSchema(STRUCTURED_OUTPUTS_SCHEMA)] = None

    cache_salt: str | None = Field(None, min_length=1, max_length=MAX_SALT_CHARS, pattern=r"^[^@/\\\x00]*$")
    request_id: str | None = Field(None, min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:-]*$")
    user: str | None = Field(None, max_length=MAX_NAME_CHARS)
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None, BeforeValidator(values.read_metadata)
    ] = Field(None, max_length=MAX_METADATA)


class ChatRequest(RequestBody):
    """POST /v1/chat/completions."""

    refused: ClassVar[dict[str, Refused]] = RequestBody.refused | {
        "audio": Refused(),
        "best_of": Refused((1,)),
        "function_call": Refused(("none", "auto")),
        "functions": Refused(([],)),
        "modalities": Refused((["text"],)),
        "prediction": Refused(),
        "prompt_cache_retention": Refused(("in-memory", "in_memory")),
        "verbosity": Refused(("medium",)),
        "web_search_options": Refused(),
    }

    messages: Annotated[list[Any], WithJsonSchema(MESSAGES_SCHEMA)] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(None, max_length=MAX_TEMPLATE_KWARGS)
    documents: Annotated[list[dict[str, str]] | None, BeforeValidator(values.read_documents), WithJsonSchema(values.DOCUMENTS_SCHEMA)] = (
        Field(None, max_length=values.MAX_DOCUMENTS)
    )
    tools: Annotated[list[Any] | None, WithJsonSchema(TOOLS_SCHEMA)] = Field(None, max_length=MAX_TOOLS)
    tool_choice: Annotated[Any, WithJsonSchema(TOOL_CHOICE_SCHEMA)] = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    include_reasoning: bool | None = None
    prompt_cache_key: str | None = Field(None, max_length=MAX_NAME_CHARS)
    safety_identifier: str | None = Field(None, max_length=MAX_NAME_CHARS)


class CompletionRequest(RequestBody):
    """POST /v1/completions. `max_tokens` 0 asks for the prompt alone, with echo."""

    refused: ClassVar[dict[str, Refused]] = RequestBody.refused | {
        "prompt_embeds": Refused(),
        "suffix": Refused(("",), "asks for text to be filled in, which this model was not made for; leave it out"),
    }

    prompt: Annotated[list[str] | list[list[int]], BeforeValidator(values.read_prompts), WithJsonSchema(values.PROMPT_SCHEMA)] = Field(
        max_length=MAX_PROMPTS
    )
    max_tokens: int | None = Field(None, ge=0, le=MAX_TOKENS)
    best_of: int | None = Field(None, ge=1, le=MAX_TOKENS)
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)


class TokenizeTextRequest(Body):
    """POST /tokenize, a text."""

    model: str | None = Field(None, max_length=MAX_NAME_CHARS)
    prompt: str = Field(max_length=MAX_PROMPT_CHARS)
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChatRequest(Body):
    """POST /tokenize, a conversation."""

    refused: ClassVar[dict[str, Refused]] = {"tools": Refused(([],))}

    model: str | None = Field(None, max_length=MAX_NAME_CHARS)
    messages: Annotated[list[Any], WithJsonSchema(MESSAGES_SCHEMA)] = Field(min_length=1, max_length=MAX_MESSAGES)
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(None, max_length=MAX_TEMPLATE_KWARGS)
    return_token_strs: bool | None = None


class DetokenizeRequest(Body):
    """POST /detokenize."""

    model: str | None = Field(None, max_length=MAX_NAME_CHARS)
    tokens: list[TokenId] = Field(max_length=MAX_DETOKENIZED)
