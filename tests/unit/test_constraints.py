"""StructuredOutputsParams: one kind, every bound, at once and in plain words."""

import time

import msgspec
import pytest

from octavo import SamplingParams, StructuredOutputsParams
from octavo.errors import InvalidRequest


def nested(depth):
    schema = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


WRONG = [
    ({}, "invalid_value", ""),
    ({"regex": "a", "json": {}}, "invalid_value", ""),
    ({"json": 5}, "invalid_json_schema", ".json"),
    ({"json": "5"}, "invalid_json_schema", ".json"),
    ({"json": "{"}, "invalid_json_schema", ".json"),
    ({"json": ""}, "invalid_json_schema", ".json"),
    ({"json": nested(40)}, "schema_too_complex", ".json"),
    ({"json": '{"a":' * 10_000}, "schema_too_complex", ".json"),
    ({"json": "[" * 20_000}, "schema_too_complex", ".json"),
    ({"json": {"properties": {str(number): True for number in range(100_000)}}}, "schema_too_complex", ".json"),
    ({"json": {"enum": list(range(50_000))}}, "schema_too_complex", ".json"),
    ({"json": {"description": "x" * 70_000}}, "schema_too_complex", ".json"),
    ({"json": {"$ref": "http://127.0.0.1/schema"}}, "invalid_json_schema", ".json"),
    ({"json": {"pattern": "(" * 100}}, "schema_too_complex", ".json"),
    ({"regex": ""}, "invalid_value", ".regex"),
    ({"regex": 5}, "invalid_type", ".regex"),
    ({"regex": "a" * 2000}, "string_above_max_length", ".regex"),
    ({"regex": "(" * 100}, "schema_too_complex", ".regex"),
    ({"grammar": "  "}, "invalid_value", ".grammar"),
    ({"grammar": "root ::= " + "(" * 30_000}, "schema_too_complex", ".grammar"),
    ({"grammar": "x" * 100_000}, "string_above_max_length", ".grammar"),
    ({"choice": []}, "invalid_value", ".choice"),
    ({"choice": [""]}, "invalid_value", ".choice"),
    ({"choice": [1]}, "invalid_type", ".choice"),
    ({"choice": "yes"}, "invalid_type", ".choice"),
    ({"choice": ["a"] * 100_000}, "array_above_max_length", ".choice"),
    ({"choice": ["a" * 1000] * 100}, "string_above_max_length", ".choice"),
    ({"json_object": False}, "invalid_value", ".json_object"),
    ({"json_object": 1}, "invalid_value", ".json_object"),
    ({"json": {"pattern": "a" * 2000}}, "schema_too_complex", ".json"),
    ({"json": {"anyOf": [{"x-guidance": {"lenient": True}}]}}, "invalid_json_schema", ".json"),
    ({"structural_tag": {"structures": [{"schema": {"x-guidance": {}}}]}}, "invalid_json_schema", ".structural_tag"),
    ({"json": {"$ref": "#/ex%61mples/0", "examples": [{"x-guidance": {}}]}}, "invalid_json_schema", ".json"),
    ({"json": {"allOf": [{"$ref": "#/default/a~1b"}], "default": {"a/b": {"const": 2**60}}}}, "invalid_json_schema", ".json"),
    ({"json": {"const": 2**53 + 1}}, "invalid_json_schema", ".json"),
    ({"json": '{"const": 9007199254740993}'}, "invalid_json_schema", ".json"),
    ({"json": '{"enum": [{"a": [1, -9007199254740993]}]}'}, "invalid_json_schema", ".json"),
    ({"json": {"properties": {"a": {"maximum": 2**63 - 1}}}}, "invalid_json_schema", ".json"),
    ({"json": {"minimum": -1e17}}, "invalid_json_schema", ".json"),
    ({"json": {"multipleOf": 10**400}}, "invalid_json_schema", ".json"),
    ({"json": {"exclusiveMaximum": float("inf")}}, "invalid_json_schema", ".json"),
    ({"choice": ["\ud800"]}, "invalid_value", ".choice"),
    ({"regex": "\udfff"}, "invalid_value", ".regex"),
    ({"json": {"const": "\ud800"}}, "invalid_json_schema", ".json"),
    ({"regex": "a", "whitespace_pattern": " "}, "invalid_value", ".whitespace_pattern"),
    ({"choice": ["a"], "disable_any_whitespace": True}, "invalid_value", ".disable_any_whitespace"),
    ({"json": {}, "disable_any_whitespace": 1}, "invalid_type", ".disable_any_whitespace"),
    ({"json": {}, "whitespace_pattern": " ", "disable_any_whitespace": True}, "invalid_value", ".whitespace_pattern"),
    ({"json": {}, "whitespace_pattern": " " * 5 + "x" * 100}, "string_above_max_length", ".whitespace_pattern"),
]


@pytest.mark.parametrize(("fields", "code", "where"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_refused_before_it_is_compiled(fields, code, where):
    began = time.process_time()
    with pytest.raises(InvalidRequest) as raised:
        StructuredOutputsParams(**fields)
    assert time.process_time() - began < 0.2
    assert (raised.value.code, raised.value.param) == (code, f"structured_outputs{where}")


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [{"$ref": "http://127.0.0.1/"}, {"x-guidance": 1}]},
        {"properties": {"x-guidance": {"type": "string"}, "maximum": {}, "const": {"type": "integer"}}},
        {"default": 2**60, "examples": [2**60], "maxLength": 2**60},
        {"const": 2**53, "minimum": -(2**53), "maximum": 0.5},
        {"pattern": ""},
    ],
    ids=str,
)
def test_data_and_names_are_not_taken_for_keywords_and_what_is_exact_is_taken(schema):
    assert StructuredOutputsParams(json=schema).kind == "json"


def test_what_is_wrong_in_a_schema_is_said_with_its_keyword_and_value():
    number = {"maximum": 2**63 - 1}, ("maximum", "9223372036854775807", "2^53")
    for schema, words in (number, ({"pattern": "a" * 2000}, ("pattern", "2,000"))):
        with pytest.raises(InvalidRequest) as raised:
            StructuredOutputsParams(json=schema)
        assert all(word in raised.value.message for word in words)


@pytest.mark.parametrize(
    "schema", [{"type": "object", "properties": {"b": {}, "a": {}}}, '{"type": "object", "properties": {"b": {}, "a": {}}}']
)
def test_a_schema_keeps_the_order_of_its_properties_over_the_wire(schema):
    params = SamplingParams(structured_outputs=StructuredOutputsParams(json=schema))
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams)
    assert again == params
    assert again.structured_outputs.json == '{"type":"object","properties":{"b":{},"a":{}}}'


def test_params_take_no_other_kind_of_constraint():
    with pytest.raises(InvalidRequest) as raised:
        SamplingParams(structured_outputs={"json": {}})
    assert raised.value.param == "structured_outputs"
