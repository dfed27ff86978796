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
