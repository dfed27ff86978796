"""Request schemas: closed, and no field without a bound."""

import pytest

from octavo.server.openai.schemas import ChatRequest, CompletionRequest

CHECKED_ELSEWHERE = {
    "messages",
    "chat_template_kwargs",
    "logit_bias",
    "prompt",
    "stop",
    "tools",
}  # item bounds: the template, or the field's own validator


def unbounded(schema, path="", *, definitions=None):
    """Yield the places of a JSON schema that have no bound."""
    definitions = definitions or schema.get("$defs", {})
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[1]]
    for variant in schema.get("anyOf", ()):
        yield from unbounded(variant, path, definitions=definitions)
    kind = schema.get("type")
    if kind in ("integer", "number"):
        low = "minimum" in schema or "exclusiveMinimum" in schema
        if not (low and "maximum" in schema):
            yield path
    elif kind == "string" and not {"maxLength", "enum", "const"} & set(schema):
        yield path
    elif kind == "array":
        if "maxItems" not in schema:
            yield path
        yield from unbounded(schema.get("items", {}), f"{path}[]", definitions=definitions)
    elif kind == "object" and "properties" in schema:
        if schema.get("additionalProperties", True):
            yield path
        for name, field in schema["properties"].items():
            if name not in CHECKED_ELSEWHERE:
                yield from unbounded(field, f"{path}.{name}", definitions=definitions)
    elif kind == "object" and "maxProperties" not in schema:
        yield path


@pytest.mark.parametrize("schema", [ChatRequest, CompletionRequest])
def test_every_field_has_a_bound(schema):
    assert list(unbounded(schema.model_json_schema())) == []


@pytest.mark.parametrize("schema", [ChatRequest, CompletionRequest])
def test_fields_checked_elsewhere_are_bounded_in_number(schema):
    for name in CHECKED_ELSEWHERE & set(schema.model_fields):
        assert any(getattr(item, "max_length", None) for item in schema.model_fields[name].metadata), name


@pytest.mark.parametrize("schema", [ChatRequest, CompletionRequest])
def test_no_field_is_both_known_and_refused(schema):
    assert not set(schema.refused_fields) & set(schema.model_fields)
    assert set(schema.refused_when_set) <= set(schema.model_fields)
