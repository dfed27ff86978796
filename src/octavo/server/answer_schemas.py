"""What the endpoints answer with, as JSON schemas for /openapi.json: every field named here is always there.

Answers may hold more than is named; tests/conformance holds each of them to its schema.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}
_YES_NO: Schema = {"type": "boolean"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_OBJECT_OR_NULL: Schema = {"type": ["object", "null"]}
_STOP_REASON: Schema = {"type": ["string", "integer", "null"]}


def _object(**fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": list(fields)}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _one_of(*values: str | None) -> Schema:
    return {"enum": list(values)}


_USAGE = _object(prompt_tokens=_COUNT, total_tokens=_COUNT)
_GENERATED = _object(prompt_tokens=_COUNT, completion_tokens=_COUNT, total_tokens=_COUNT)
_CARD = _object(
    id=_TEXT, object=_one_of("model"), created=_COUNT, owned_by=_TEXT, max_model_len=_COUNT, permission=_list({"type": "object"})
)
_VECTOR: Schema = {"anyOf": [_list({}), _TEXT]}  # numbers, rows of them, or base64


def _completion(kind: str, **choice: Schema) -> Schema:
    choices = _list(_object(index=_COUNT, finish_reason=_one_of("stop", "length", "tool_calls"), stop_reason=_STOP_REASON, **choice))
    return _object(id=_TEXT, object=_one_of(kind), created=_COUNT, model=_TEXT, system_fingerprint=_TEXT, choices=choices, usage=_GENERATED)


def _data(item: Schema) -> Schema:
    return _object(id=_TEXT, object=_one_of("list"), created=_COUNT, model=_TEXT, data=_list(item), usage=_USAGE)


_ERROR = _object(message=_TEXT, type=_TEXT, param=_TEXT_OR_NULL, code=_TEXT_OR_NULL)

ANSWERS: dict[str, Schema] = {
    "Error": _object(error=_ERROR),
    "AnthropicError": _object(type=_one_of("error"), error=_object(type=_TEXT, message=_TEXT)),
    "ChatCompletion": _completion(
        "chat.completion", logprobs=_OBJECT_OR_NULL, message=_object(role=_one_of("assistant"), content=_TEXT_OR_NULL)
    ),
    "TextCompletion": _completion("text_completion", logprobs=_OBJECT_OR_NULL, text=_TEXT),
    "Completion": {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in ("ChatCompletion", "TextCompletion")]},
    "Response": _object(
        id=_TEXT,
        object=_one_of("response"),
        created_at=_COUNT,
        model=_TEXT,
        status=_one_of("completed", "incomplete", "failed"),
        error=_OBJECT_OR_NULL,
        incomplete_details=_OBJECT_OR_NULL,
        output=_list(_object(type=_TEXT, id=_TEXT)),
        store=_YES_NO,
        usage=_object(input_tokens=_COUNT, output_tokens=_COUNT, total_tokens=_COUNT),
    ),
    "Deleted": _object(id=_TEXT, object=_one_of("response"), deleted=_YES_NO),
    "InputItems": _object(
        object=_one_of("list"), data=_list(_object(id=_TEXT)), first_id=_TEXT_OR_NULL, last_id=_TEXT_OR_NULL, has_more=_YES_NO
    ),
    "Message": _object(
        id=_TEXT,
        type=_one_of("message"),
        role=_one_of("assistant"),
        model=_TEXT,
        content=_list(_object(type=_TEXT)),
        stop_reason=_one_of("end_turn", "max_tokens", "stop_sequence", "tool_use"),
        stop_sequence=_TEXT_OR_NULL,
        usage=_object(input_tokens=_COUNT, output_tokens=_COUNT, cache_read_input_tokens=_COUNT, cache_creation_input_tokens=_COUNT),
    ),
    "TokenCount": _object(input_tokens=_COUNT),
    "Embeddings": _data(_object(index=_COUNT, object=_one_of("embedding"), embedding=_VECTOR)),
    "Pooled": _data(_object(index=_COUNT, object=_one_of("pooling"), data=_VECTOR)),
    "Classes": _data(_object(index=_COUNT, label=_TEXT, probs=_list(_NUMBER), num_classes=_COUNT)),
    "Scores": _data(_object(index=_COUNT, object=_one_of("score"), score=_NUMBER)),
    "Ranking": _object(id=_TEXT, model=_TEXT, results=_list(_object(index=_COUNT, relevance_score=_NUMBER)), usage=_USAGE),
    "Models": _object(object=_one_of("list"), data=_list(_CARD)),
    "Model": _CARD,
    "Tokens": _object(count=_COUNT, max_model_len=_COUNT, tokens=_list(_COUNT), token_strs={"type": ["array", "null"], "items": _TEXT}),
    "Text": _object(prompt=_TEXT),
    "TokenizerInfo": _object(
        tokenizer_class=_TEXT, vocab_size=_COUNT, model_max_length=_COUNT, eos_token=_TEXT_OR_NULL, chat_template=_TEXT_OR_NULL
    ),
    "Load": _object(server_load=_COUNT),
    "Version": _object(version=_TEXT),
    "ServerInfo": _object(
        version=_TEXT, models=_list(_TEXT), engine={"type": "object"}, phases=_list({"type": "object"}), server={"type": "object"}
    ),
    "Success": _object(success=_YES_NO),
    "Paused": _object(status=_one_of("paused")),
    "Resumed": _object(status=_one_of("resumed")),
    "IsPaused": _object(is_paused=_YES_NO),
    "PlanChoices": {"type": "object"},
    "Plan": {"type": "object"},
    "OpenAPI": _object(openapi=_TEXT, info={"type": "object"}, paths={"type": "object"}, components={"type": "object"}),
}
