"""The request bodies of the endpoints for vectors and scores: closed, strict, every field bounded, as in openai/schemas.py."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from octavo.server.openai.schemas import MAX_NAME_CHARS, Body, Refused
from octavo.server.openai.values import MAX_TOKENS

MAX_TEXTS = 2048
MAX_TEXT_CHARS = 1 << 20
MAX_TEXT_TOKENS = 1 << 16
MAX_PRIORITY = 2**31 - 1

_TEXT_SCHEMA = {"type": "string", "maxLength": MAX_TEXT_CHARS}
_IDS_SCHEMA = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": MAX_TOKENS},
    "minItems": 1,
    "maxItems": MAX_TEXT_TOKENS,
}


def _list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1, "maxItems": MAX_TEXTS}


INPUT_SCHEMA = {"anyOf": [_TEXT_SCHEMA, _IDS_SCHEMA, _list_of(_TEXT_SCHEMA), _list_of(_IDS_SCHEMA)]}
STRINGS_SCHEMA = {"anyOf": [_TEXT_SCHEMA, _list_of(_TEXT_SCHEMA), {"type": "null"}]}
DOCUMENTS_SCHEMA = _list_of(
    {
        "anyOf": [
            _TEXT_SCHEMA,
            {"type": "object", "properties": {"text": _TEXT_SCHEMA}, "required": ["text"], "additionalProperties": False},
        ]
    }
)

Texts = list[str] | list[list[int]]


def _texts(value: Any) -> Any:
    """A text or a list of them, as text or token ids -> a list of one kind."""
    one = isinstance(value, str) or (isinstance(value, list) and value and type(value[0]) in (int, float))
    texts = [value] if one else value
    if not isinstance(texts, list):
        raise PydanticCustomError("invalid_type", "input must be a string, an array of strings, an array of token ids or an array of those")
    if len(texts) > MAX_TEXTS:
        raise PydanticCustomError("array_above_max_length", f"input has too many items; the limit is {MAX_TEXTS:,}")
    if not texts or not all(isinstance(text, str) or text for text in texts):
        raise PydanticCustomError("invalid_value", "the input is empty; send at least one text")
    if all(isinstance(text, str) for text in texts):
        return _short_enough(texts)
    for text in texts:
        if not isinstance(text, list) or len(text) > MAX_TEXT_TOKENS or not set(map(type, text)) <= {int}:
            raise PydanticCustomError("invalid_type", "an input must be a string or an array of integers, and all inputs of one kind")
        if min(text) < 0 or max(text) > MAX_TOKENS:
            raise PydanticCustomError("invalid_value", "an input holds a token id outside the model's vocabulary")
    return texts


def _strings(value: Any) -> Any:
    """A text or a list of them -> a list."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise PydanticCustomError("invalid_type", "texts must be a string or an array of strings")
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise PydanticCustomError("invalid_value", f"there must be 1 to {MAX_TEXTS:,} texts")
    return _short_enough(texts)


def _short_enough(texts: list[str]) -> list[str]:
    if any(len(text) > MAX_TEXT_CHARS for text in texts):
        raise PydanticCustomError("invalid_value", f"a text is too long; the limit is {MAX_TEXT_CHARS:,} characters")
    return texts


def _strings_or_none(value: Any) -> Any:
    return None if value is None else _strings(value)


def _documents(value: Any) -> Any:
    """A list of texts, or of objects with a text as Cohere's and Jina's clients send them -> a list of texts."""
    if not isinstance(value, list):
        raise PydanticCustomError("invalid_type", "documents must be an array of strings")
    return _strings([item["text"] if isinstance(item, dict) and item.keys() == {"text"} else item for item in value])


def _kept(value: int | None) -> int | None:
    if value == 0:
        raise PydanticCustomError("invalid_value", "truncate_prompt_tokens must be at least 1, or -1 for as many as the model takes")
    return value


Strings = Annotated[list[str] | None, BeforeValidator(_strings_or_none), WithJsonSchema(STRINGS_SCHEMA)]


class PoolingBody(Body):
    """What all of them share."""

    refused: ClassVar[dict[str, Refused]] = {
        "add_special_tokens": Refused((True,)),
        "cache_salt": Refused(),
        "embed_dtype": Refused(("float32",)),
        "endianness": Refused(("native", "little")),
        "max_tokens_per_doc": Refused(),
        "messages": Refused(),
        "mm_processor_kwargs": Refused(),
        "request_id": Refused(),
        "softmax": Refused(),
    }

    model: str = Field(max_length=MAX_NAME_CHARS)
    truncate_prompt_tokens: Annotated[int | None, AfterValidator(_kept)] = Field(None, ge=-1, le=MAX_TOKENS)
    priority: int | None = Field(None, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    user: str | None = Field(None, max_length=MAX_NAME_CHARS)


class InputBody(PoolingBody):
    input: Annotated[Texts, BeforeValidator(_texts), WithJsonSchema(INPUT_SCHEMA)] = Field(max_length=MAX_TEXTS)


class EmbeddingRequest(InputBody):
    """POST /v1/embeddings. Without `use_activation` vectors keep their length."""

    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, ge=1, le=MAX_TOKENS)
    use_activation: bool | None = None


class PoolingRequest(InputBody):
    """POST /pooling. No `task`: token_embed, or classify of a model with classes."""

    task: Literal["embed", "token_embed", "classify"] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, ge=1, le=MAX_TOKENS)
    use_activation: bool | None = None


class ClassifyRequest(InputBody):
    """POST /classify."""

    use_activation: bool | None = None


class RerankRequest(PoolingBody):
    """POST /rerank. `top_n` None or 0: all documents."""

    query: str = Field(max_length=MAX_TEXT_CHARS)
    documents: Annotated[list[str], BeforeValidator(_documents), WithJsonSchema(DOCUMENTS_SCHEMA)] = Field(max_length=MAX_TEXTS)
    top_n: int | None = Field(None, ge=0, le=MAX_TEXTS)
    return_documents: bool | None = None


class ScoreRequest(PoolingBody):
    """POST /score: one text and several, or two lists of one length, under one of the pairs of names in scores.py."""

    text_1: Strings = Field(None, max_length=MAX_TEXTS)
    text_2: Strings = Field(None, max_length=MAX_TEXTS)
    queries: Strings = Field(None, max_length=MAX_TEXTS)
    documents: Strings = Field(None, max_length=MAX_TEXTS)
    items: Strings = Field(None, max_length=MAX_TEXTS)
    data_1: Strings = Field(None, max_length=MAX_TEXTS)
    data_2: Strings = Field(None, max_length=MAX_TEXTS)
