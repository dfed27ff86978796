"""Tools that are taken are described in /openapi.json, in each of the three shapes that they come in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from octavo.errors import InvalidRequest
from octavo.server.anthropic import endpoints as messages
from octavo.server.anthropic.schemas import MessagesRequest
from octavo.server.openai.messages_schema import TOOL_CHOICE_SCHEMA
from octavo.server.openai.schemas import ChatRequest
from octavo.server.responses import endpoints as responses
from octavo.server.responses.schemas import ResponsesRequest
from octavo.text.tools import read_tool_choice, validate_tools

READERS = {
    ChatRequest: validate_tools,
    ResponsesRequest: lambda tools: validate_tools([responses._as_chat_tool(tool) for tool in tools]),
    MessagesRequest: lambda tools: validate_tools([messages._as_chat_tool(tool, "tools[0]") for tool in tools]),
}
odd = st.sampled_from([None, True, False, 0, "", "a b", "auto", [], {}, {"type": "string"}, {"a": 1}, {"type": "ephemeral"}, "x" * 70])


def mostly(good):
    return st.integers(0, 5).flatmap(lambda dice: odd if dice == 0 else good)


ABOUT = {
    "name": mostly(st.just("f")),
    "description": mostly(st.just("d")),
    "strict": odd,
    "parameters": mostly(st.sampled_from([{}, {"type": "object"}, {str(i): 1 for i in range(70)}])),
    "input_schema": mostly(st.just({"type": "object"})),
    "cache_control": odd,
    "type": mostly(st.sampled_from(["function", "custom"])),
    "unheard_of": odd,
}
flat = st.fixed_dictionaries({"name": ABOUT["name"]}, optional={name: ABOUT[name] for name in ABOUT if name != "name"})
tools = st.lists(st.one_of(flat, st.fixed_dictionaries({"type": mostly(st.just("function")), "function": mostly(flat)}), odd), max_size=1)


@pytest.mark.parametrize("schema", READERS, ids=lambda schema: schema.__name__)
@settings(max_examples=300, deadline=None, derandomize=True)
@given(given_tools=tools)
def test_a_tool_that_is_taken_is_described(schema, given_tools):
    try:
        READERS[schema](given_tools)
    except InvalidRequest:
        return
    described = schema.model_json_schema()
    assert Draft202012Validator(described["properties"]["tools"] | {"$defs": described.get("$defs", {})}).is_valid(given_tools)


allowed = st.fixed_dictionaries(
    {
        "mode": mostly(st.sampled_from(["auto", "required"])),
        "tools": mostly(st.lists(st.fixed_dictionaries({"type": ABOUT["type"], "name": ABOUT["name"]}), max_size=2)),
    },
    optional={"unheard_of": odd},
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(allowed)
def test_a_choice_among_tools_is_described_exactly_where_it_is_taken(fields):
    """But for the names, which must be of tools that are there."""
    choice = {"type": "allowed_tools"} | fields
    as_chat = responses._as_chat_choice(choice)
    is_described = [
        Draft202012Validator(schema).is_valid(value)
        for schema, value in (
            (ResponsesRequest.model_json_schema()["properties"]["tool_choice"], choice),
            (TOOL_CHOICE_SCHEMA, as_chat),
        )
    ]
    try:
        read_tool_choice(as_chat, [{"type": "function", "function": {"name": "f"}}])
    except InvalidRequest as error:
        assert "names no tool" in error.message or not any(is_described)
    else:
        assert all(is_described)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.one_of(odd, st.sampled_from(["none", "auto", "required", {"type": "auto"}, {"type": "none"}, {"type": "required"}])))
def test_a_choice_that_can_be_honoured_is_described(choice):
    try:
        kind = read_tool_choice(choice, []).kind
    except InvalidRequest:
        return
    assert kind in ("none", "auto") and Draft202012Validator(TOOL_CHOICE_SCHEMA).is_valid(choice)
