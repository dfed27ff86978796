"""Fields that come in several shapes, read into one: stop strings, logit_bias, prompts.

Each reader raises PydanticCustomError with one of OpenAI's codes. Beside it stands the JSON schema of what it takes, for
/openapi.json.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticCustomError

from octavo.params import MAX_LOGIT_BIAS, MAX_STOP_STRING_CHARS, MAX_STOP_STRINGS

MAX_PROMPTS = 32
MAX_PROMPT_CHARS = 1 << 26
MAX_PROMPT_TOKENS = 1 << 24
MAX_TOKENS = 2**31 - 1
MAX_METADATA = 16
MAX_DOCUMENTS = 64
MAX_DOCUMENT_FIELDS = 16
MAX_TEMPLATE_KWARGS = 16

_TOKEN_ID = {"type": "integer", "minimum": 0, "maximum": MAX_TOKENS}
_TOKEN_IDS = {"type": "array", "items": _TOKEN_ID, "minItems": 1, "maxItems": MAX_PROMPT_TOKENS}
_PROMPT_TEXT = {"type": "string", "minLength": 1, "maxLength": MAX_PROMPT_CHARS}
_STOP_STRING = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_STRING_CHARS}

STOP_SCHEMA = {"anyOf": [_STOP_STRING, {"type": "array", "items": _STOP_STRING, "maxItems": MAX_STOP_STRINGS}, {"type": "null"}]}
LOGIT_BIAS_SCHEMA = {
    "anyOf": [
        {
            "type": "object",
            "maxProperties": MAX_LOGIT_BIAS,
            "propertyNames": {"pattern": "^[0-9]{1,10}$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        },
        {"type": "null"},
    ]
}
PROMPT_SCHEMA = {
    "anyOf": [
        _PROMPT_TEXT,
        _TOKEN_IDS,
        {"type": "array", "items": _PROMPT_TEXT, "minItems": 1, "maxItems": MAX_PROMPTS},
        {"type": "array", "items": _TOKEN_IDS, "minItems": 1, "maxItems": MAX_PROMPTS},
    ]
}
DOCUMENTS_SCHEMA = {
    "anyOf": [
        {
            "type": "array",
            "maxItems": MAX_DOCUMENTS,
            "items": {
                "type": "object",
                "maxProperties": MAX_DOCUMENT_FIELDS,
                "additionalProperties": {"type": "string", "maxLength": MAX_PROMPT_CHARS},
            },
        },
        {"type": "null"},
    ]
}


def read_stop(value: Any) -> list[str]:
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


def read_logit_bias(value: Any) -> dict[int, float]:
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


def read_prompts(value: Any) -> list[str] | list[list[int]]:
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


def read_metadata(value: Any) -> Any:
    """Count before looking: Pydantic would list a mistake for each of a million entries."""
    if isinstance(value, dict) and len(value) > MAX_METADATA:
        raise PydanticCustomError("array_above_max_length", f"metadata has too many entries; the limit is {MAX_METADATA}")
    return value


def read_documents(value: Any) -> list[dict[str, str]] | None:
    """Objects of texts, such as {"title": ..., "text": ...}."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(document, dict) for document in value):
        raise PydanticCustomError("invalid_type", "documents must be an array of objects")
    if len(value) > MAX_DOCUMENTS or any(len(document) > MAX_DOCUMENT_FIELDS for document in value):
        raise PydanticCustomError(
            "array_above_max_length",
            f"documents has too many items; the limit is {MAX_DOCUMENTS} documents of {MAX_DOCUMENT_FIELDS} fields",
        )
    if not all(isinstance(text, str) for document in value for text in document.values()):
        raise PydanticCustomError("invalid_type", "the fields of a document must be strings")
    return value
