"""Request schemas: closed, and no field without a bound."""

import pytest

from octavo.server.routes import ENDPOINTS

SCHEMAS = list(dict.fromkeys(body for endpoint in ENDPOINTS for body in endpoint.bodies))
CHECKED_ELSEWHERE = {"chat_template_kwargs", "arguments"}  # by the template's own list


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
    elif kind == "string" and not {"maxLength", "const", "enum"} & set(schema):
        yield path
    elif kind == "array":
        if "maxItems" not in schema:
            yield path
        yield from unbounded(schema.get("items", {}), f"{path}[]", definitions=definitions)
    elif kind == "object" and "properties" in schema:
        if schema.get("additionalProperties", True):
            yield path
        for name, field in schema["properties"].items():
            yield from unbounded(field, f"{path}.{name}", definitions=definitions)
    elif kind == "object":
        if "maxProperties" not in schema:
            yield path
        if isinstance(schema.get("additionalProperties"), dict):
            yield from unbounded(schema["additionalProperties"], f"{path}{{}}", definitions=definitions)
    elif kind is None and path and not {"anyOf", "const", "enum"} & set(schema):
        yield path


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_field_has_a_bound(schema):
    places = [place for place in unbounded(schema.model_json_schema()) if place.rsplit(".", 1)[1].rstrip("{}") not in CHECKED_ELSEWHERE]
    assert places == []


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_a_reader_turns_into_a_list_or_an_object_is_bounded_in_number(schema):
    for name, field in schema.model_fields.items():
        if "list[" in str(field.annotation) or "dict[" in str(field.annotation):
            assert any(getattr(item, "max_length", None) for item in field.metadata), name


@pytest.mark.parametrize("schema", SCHEMAS)
def test_no_field_is_both_known_and_refused(schema):
    assert not set(schema.refused) & set(schema.model_fields)


def test_a_walk_finds_what_has_no_bound():
    schema = {"type": "object", "additionalProperties": False, "properties": {"a": {"type": "string"}, "b": {}}}
    assert list(unbounded(schema)) == [".a", ".b"]
