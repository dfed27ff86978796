"""The fields of the API as a table for people: which endpoint honours which, within what bounds, and which it refuses."""

from __future__ import annotations

import json
from typing import Any

from octavo.server.anthropic.schemas import CountTokensRequest, MessagesRequest
from octavo.server.openai.schemas import (
    Body,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Refused,
    TokenizeChatRequest,
    TokenizeTextRequest,
)
from octavo.server.pooling.schemas import ClassifyRequest, EmbeddingRequest, PoolingRequest, RerankRequest, ScoreRequest
from octavo.server.responses.schemas import ResponsesRequest

TEXT_COLUMNS: dict[str, type[Body]] = {
    "chat": ChatRequest,
    "completions": CompletionRequest,
    "responses": ResponsesRequest,
    "messages": MessagesRequest,
    "count_tokens": CountTokensRequest,
    "tokenize (text)": TokenizeTextRequest,
    "tokenize (chat)": TokenizeChatRequest,
    "detokenize": DetokenizeRequest,
}
VECTOR_COLUMNS: dict[str, type[Body]] = {
    "embeddings": EmbeddingRequest,
    "pooling": PoolingRequest,
    "classify": ClassifyRequest,
    "score": ScoreRequest,
    "rerank": RerankRequest,
}
_LIMITS = {"maxLength": "{:,} characters", "maxItems": "{:,} items", "maxProperties": "{:,} entries"}


def fields_markdown(columns: dict[str, type[Body]]) -> str:
    """Return the table of these endpoints for the docs."""
    names = sorted({name for schema in columns.values() for name in (*schema.model_fields, *schema.refused)})
    lines = [f"| field | {' | '.join(columns)} | bounds |", f"|---{'|---' * len(columns)}|---|"]
    for name in names:
        marks = [_mark(schema, name) for schema in columns.values()]
        bounds = dict.fromkeys(bound_in(schema, name) for schema in columns.values() if name in schema.model_fields)
        lines.append(f"| `{name}` | {' | '.join(marks)} | {'; '.join(bounds)} |")
    return "\n".join(lines) + "\n"


def _mark(schema: type[Body], name: str) -> str:
    if name in schema.model_fields:
        return "yes"
    if name in schema.refused:
        return _refusal(schema.refused[name])
    return ""


def _refusal(refused: Refused) -> str:
    if not refused.neutral:
        return "refused"
    return f"only {' or '.join(f'`{json.dumps(value)}`' for value in refused.neutral)}"


def bound_in(schema: type[Body], name: str) -> str:
    described = schema.model_json_schema()
    return bound_of(described["properties"][name], described.get("$defs", {}))


def bound_of(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return in words what a JSON schema takes."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(bound_of(variant, definitions) for variant in schema["anyOf"] if variant.get("type") != "null"))
    if "const" in schema or "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "value")
    if kind in ("integer", "number"):
        return f"{kind} {_range(schema)}"
    if kind == "array":
        return (
            f"array of {bound_of(schema.get('items', {}), definitions)}, up to {schema['maxItems']:,} items"
            if "maxItems" in schema
            else "array"
        )
    limits = [text.format(schema[key]) for key, text in _LIMITS.items() if key in schema]
    if kind == "object" and "properties" in schema:
        limits = [", ".join(schema["properties"])]
    return f"{kind}{' of ' if kind == 'object' and limits else ', up to ' if limits else ''}{''.join(limits)}"


def _range(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    above = " (more than the first)" if "exclusiveMinimum" in schema else ""
    return f"{low:,}..{high:,}{above}"
