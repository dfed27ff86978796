"""The request bodies of the OpenAI API: closed, strict (no coercion), every field bounded.

A field that we do not honour is refused by name: `refused_fields` (with the value that asks for nothing, which passes),
and `refused_when_set` for those whose value is checked first. Messages and chat_template_kwargs are checked by text.chat.ChatTemplate,
tools and tool_choice by text.tools.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from octavo.params import MAX_LOGIT_BIAS, MAX_LOGPROBS, MAX_N, MAX_STOP_STRING_CHARS, MAX_STOP_STRINGS, MIN_REPETITION_PENALTY
from octavo.text.chat import MAX_TEMPLATE_KWARGS
from octavo.text.tools import MAX_TOOLS

MAX_MESSAGES = 2048
MAX_PROMPTS = 32
MAX_NAME_CHARS = 256
MAX_TOKENS = 2**31 - 1
MAX_STOP_TOKEN_IDS = 128
MAX_METADATA = 16

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def _stop(value: Any) -> list[str]:
    """None, a string or a list of strings -> a list."""
    if value is None:
        return []
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(text, str) for text in strings):
        raise PydanticCustomError("invalid_type", "stop must be a string or an array of strings")
    if len(strings) > MAX_STOP_STRINGS:
        raise PydanticCustomError("array_above_max_length", f"stop has too many items; the limit is {MAX_STOP_STRINGS}")
    if not all(1 <= len(text) <= MAX_STOP_STRING_CHARS for text in strings):
        raise PydanticCustomError("invalid_value", f"a stop string must have 1 to {MAX_STOP_STRING_CHARS} characters")
    return strings


def _logit_bias(value: Any) -> dict[int, float]:
    """{"123": -1.5} -> {123: -1.5}; token ids come as strings because JSON's keys are."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PydanticCustomError("invalid_type", "logit_bias must be an object that maps token ids to numbers")
    if len(value) > MAX_LOGIT_BIAS:
        raise PydanticCustomError("invalid_value", f"logit_bias has too many entries; the limit is {MAX_LOGIT_BIAS}")
    biases: dict[int, float] = {}
    for key, bias in value.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= 10):
            raise PydanticCustomError("invalid_value", "a key of logit_bias is no token id")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise PydanticCustomError("invalid_value", "a bias in logit_bias must be a number in -100..100")
        biases[int(key)] = float(bias)
    return biases


def _prompts(value: Any) -> list[str] | list[list[int]]:
    """A prompt or a list of them, text or token ids -> a list of prompts of one kind."""
    if isinstance(value, str):
        prompts: Any = [value]
    elif isinstance(value, list) and value and not isinstance(value[0], list | str):
        prompts = [value]
    else:
        prompts = value
    if not isinstance(prompts, list):
        raise PydanticCustomError(
            "invalid_type", "prompt must be a string, an array of strings, an array of token ids or an array of those"
        )
    if len(prompts) > MAX_PROMPTS:
        raise PydanticCustomError("array_above_max_length", f"prompt has too many items; the limit is {MAX_PROMPTS}")
    if not prompts or not all(prompts):
        raise PydanticCustomError("invalid_value", "a prompt is empty; send at least one token")
    if all(isinstance(prompt, str) for prompt in prompts):
        return prompts
    for prompt in prompts:
        if not isinstance(prompt, list) or not _are_integers(prompt):
            raise PydanticCustomError("invalid_type", "a prompt must be a string or an array of integers, and all prompts of one kind")
        if min(prompt) < 0 or max(prompt) > MAX_TOKENS:
            raise PydanticCustomError("invalid_value", "a prompt holds a token id outside the model's vocabulary")
    return prompts


def _are_integers(values: list[Any]) -> bool:
    """The JSON reader gives integers beyond 64 bits as floats."""
    kinds = set(map(type, values))
    return kinds <= {int} or (kinds <= {int, float} and all(abs(value) >= 1 << 63 for value in values if isinstance(value, float)))


def _metadata(value: Any) -> Any:
    """Count before looking: Pydantic would list a mistake for each of a million entries."""
    if isinstance(value, dict) and len(value) > MAX_METADATA:
        raise PydanticCustomError("array_above_max_length", f"metadata has too many entries; the limit is {MAX_METADATA}")
    return value


def _response_format(value: Any) -> None:
    """Only {"type": "text"}, which asks for nothing."""
    if value is None:
        return
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise PydanticCustomError("invalid_type", 'response_format must be an object such as {"type": "text"}')
    if kind in ("json_object", "json_schema"):
        raise PydanticCustomError(
            "unsupported_value", 'structured output is not supported by this server; response_format takes {"type": "text"}'
        )
    if kind != "text" or len(value) > 1:
        raise PydanticCustomError("invalid_value", 'response_format must be {"type": "text"}')


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, value: Any) -> Any:
        """Stop at the first unknown field: Pydantic would list a million of them."""
        if isinstance(value, dict):
            unknown = next((name for name in value if name not in cls.model_fields), None)
            if unknown is not None:
                raise PydanticCustomError("unknown_parameter", "unknown field", {"name": unknown})
        return value


class StreamOptions(Strict):
    include_usage: bool | None = None


class RequestBody(Strict):
    """The fields that chat and text completions share. None: the model's own default, else OpenAI's."""

    refused_fields: ClassVar[dict[str, Any]] = {
        "allowed_token_ids": None,
        "bad_words": None,
        "cache_salt": None,
        "guided_choice": None,
        "guided_grammar": None,
        "guided_json": None,
        "guided_regex": None,
        "length_penalty": 1.0,
        "priority": 0,
        "request_id": None,
        "return_token_ids": False,
        "return_tokens_as_token_ids": False,
        "service_tier": "auto",
        "spaces_between_special_tokens": True,
        "store": False,
        "stream_interval": 1,
        "structured_outputs": None,
        "use_beam_search": False,
    }
    refused_when_set: ClassVar[tuple[str, ...]] = ("metadata", "prompt_logprobs", "truncate_prompt_tokens")

    model: str = Field(max_length=MAX_NAME_CHARS)
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    min_tokens: int | None = Field(None, ge=0, le=MAX_TOKENS)
    n: int | None = Field(None, ge=1, le=MAX_N)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0.0, le=2.0, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0.0, le=1.0, allow_inf_nan=False)
    top_k: int | None = Field(None, ge=-1, le=MAX_TOKENS)
    min_p: float | None = Field(None, ge=0.0, le=1.0, allow_inf_nan=False)
    presence_penalty: float | None = Field(None, ge=-2.0, le=2.0, allow_inf_nan=False)
    frequency_penalty: float | None = Field(None, ge=-2.0, le=2.0, allow_inf_nan=False)
    repetition_penalty: float | None = Field(None, ge=MIN_REPETITION_PENALTY, le=100.0, allow_inf_nan=False)
    logit_bias: Annotated[dict[int, float], BeforeValidator(_logit_bias)] = Field(default={}, max_length=MAX_LOGIT_BIAS)
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    stop: Annotated[list[Annotated[str, Field(max_length=MAX_STOP_STRING_CHARS)]], BeforeValidator(_stop)] = Field(
        default=[], max_length=MAX_STOP_STRINGS
    )
    stop_token_ids: list[Annotated[int, Field(ge=0, le=MAX_TOKENS)]] | None = Field(None, max_length=MAX_STOP_TOKEN_IDS)
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    user: str | None = Field(None, max_length=MAX_NAME_CHARS)
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None, BeforeValidator(_metadata)
    ] = Field(None, max_length=MAX_METADATA)
    prompt_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    truncate_prompt_tokens: int | None = Field(None, ge=-1, le=MAX_TOKENS)


class ChatRequest(RequestBody):
    """POST /v1/chat/completions."""

    refused_fields: ClassVar[dict[str, Any]] = RequestBody.refused_fields | {
        "add_special_tokens": False,
        "audio": None,
        "best_of": None,
        "documents": None,
        "echo": False,
        "function_call": "none",
        "functions": None,
        "modalities": ["text"],
        "prediction": None,
        "prompt_cache_key": None,
        "safety_identifier": None,
        "verbosity": None,
        "web_search_options": None,
    }

    messages: list[Any] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    response_format: Annotated[None, BeforeValidator(_response_format)] = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(None, max_length=MAX_TEMPLATE_KWARGS)
    tools: list[Any] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    include_reasoning: bool | None = None


class CompletionRequest(RequestBody):
    """POST /v1/completions."""

    refused_fields: ClassVar[dict[str, Any]] = RequestBody.refused_fields | {"add_special_tokens": True, "suffix": ""}

    prompt: Annotated[list[str] | list[list[int]], BeforeValidator(_prompts)] = Field(max_length=MAX_PROMPTS)
    best_of: int | None = Field(None, ge=1, le=MAX_TOKENS)
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    response_format: Annotated[None, BeforeValidator(_response_format)] = None
