"""What tool_choice and strict come to, checked with the grammar that comes of them."""

import pytest
from tests.fakes.tool_uses import TOKENIZER, USUAL, fits, tool, use

from octavo.config.server_schema import StructuredOutputsConfig
from octavo.errors import InvalidRequest
from octavo.parsers.formats import REASONING_FORMATS, TOOL_FORMATS
from octavo.server.openai.schemas import ChatRequest
from octavo.server.structured import behind_thoughts, is_asked_for

STRICT, FREE = '{"name": "f", "arguments": {"city": "Oslo"}}', '{"name": "g", "arguments": {"x": [1]}}'
WHOLE = [
    "Hello.",
    "a < b, `c` and {d}",
    f"Well <tool_call>\n{STRICT}\n</tool_call>",
    f"<tool_call>\n{FREE}\n</tool_call> <tool_call>{STRICT}</tool_call> done",
]
BARE = [STRICT, f"```json\n{STRICT}\n```", f"```\n{FREE}"]
BROKEN = [
    '<tool_call>\n{"name": "f", "arguments": {"town',
    'x <tool_call>\n{"name": "h',
    "<tool_call> no",
    f"<tool_call>{STRICT}</tool_call><tool_call>x",
]


@pytest.mark.parametrize("calls", ["hermes", "ernie45"])
def test_a_strict_tool_is_held_to_its_schema_and_text_and_other_tools_are_free(calls):
    found = use(calls, tools=[tool("f", strict=True), tool("g")])
    assert found.calls is TOOL_FORMATS[calls]
    for text in WHOLE:
        assert fits(found.constraint, text) == (True, True), text
    for text in BROKEN:
        assert fits(found.constraint, text) == (False, False), text


def test_a_strict_tool_is_held_to_its_schema_where_models_forget_the_mark_too():
    found = use("hermes", tools=[tool("f", strict=True), tool("g")])
    for text in BARE:
        assert fits(found.constraint, text) == (True, True), text
    for text in ('{"name": "f", "arguments": {"town', "[1]", "```json\n[", "{}"):
        assert not fits(found.constraint, text)[1], text
    marked = use("ernie45", tools=[tool("f", strict=True)])
    assert fits(marked.constraint, "{}") == (True, True)  # text: these models' calls have a mark


@pytest.mark.parametrize("calls", ["qwen3_coder", "pythonic", "mistral"])
def test_strict_is_refused_where_calls_are_written_in_another_way(calls):
    with pytest.raises(InvalidRequest, match="strict cannot be held to"):
        use(calls, tools=[tool("f", strict=True)])


def test_required_allows_every_tool_and_a_name_only_that_one():
    required = use(None, tools=[tool("f"), tool("g")], tool_choice="required")
    named = use(None, tools=[tool("f"), tool("g")], tool_choice={"type": "function", "function": {"name": "g"}})
    call = '{{"name": "{}", "arguments": {{"city": "a"}}}}'.format
    assert fits(required.constraint, f"[{call('f')},{call('g')}]") == (True, True)
    assert fits(named.constraint, f"[{call('g')}]") == (True, True)
    assert not fits(named.constraint, f"[{call('f')}]")[0] and not fits(named.constraint, f"[{call('g')},")[0]
    assert not fits(required.constraint, "[]")[0] and not fits(required.constraint, "Hello")[0]
    assert [len(found.offered) for found in (required, named)] == [2, 2]
    assert [len(found.callable) for found in (required, named)] == [2, 1]


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_of_allowed_tools_the_model_is_told_of_all_and_calls_those(mode):
    tools = [tool("f", strict=True), tool("g"), tool("h")]
    allowed = [{"type": "function", "function": {"name": name}} for name in ("g", "f")]
    found = use(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}})
    assert [one["function"]["name"] for one in found.offered] == ["f", "g", "h"]
    assert [one["function"]["name"] for one in found.callable] == ["f", "g"]
    call = '{{"name": "{}", "arguments": {{"city": "a"}}}}'.format
    begin, end = ("<tool_call>", "</tool_call>") if mode == "auto" else ("[", "]")
    assert [fits(found.constraint, f"{begin}{call(name)}{end}")[0] for name in "fgh"] == [True, True, False]
    assert fits(found.constraint, "Hello.")[1] == (mode == "auto")


def test_a_strict_tool_that_is_not_allowed_asks_for_nothing():
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]}
    found = use(tools=[tool("f", strict=True), tool("g")], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert found.constraint is None and len(found.offered) == 2


def test_calls_have_an_end():
    required = use(None, tools=[tool("f")], tool_choice="required")
    calls = ",".join(['{"name": "f", "arguments": {"city": "a"}}'] * 16)
    assert fits(required.constraint, f"[{calls}]") == (True, True)
    assert not fits(required.constraint, f"[{calls},")[0]


def test_tools_that_no_grammar_holds_are_refused_under_their_own_name():
    for fields in ({"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}):
        with pytest.raises(InvalidRequest) as raised:
            use(tools=[tool("f", parameters={"properties": {"a": {"not": {}}}})], **fields)
        assert raised.value.param == "tools"


@pytest.mark.parametrize("is_begun", [True, False])
def test_reasoning_may_come_before_what_must_match(is_begun):
    constraint = use(None, structured_outputs={"choice": ["yes", "no"]}).constraint
    behind = behind_thoughts(constraint, REASONING_FORMATS["qwen3"], TOKENIZER, is_begun=is_begun)
    begin = "" if is_begun else "<think>"
    assert fits(behind, f"{begin}hm, yes? {{</think>\n\nyes") == (True, True)
    assert fits(behind, "yes")[1] == (not is_begun)
    assert not fits(behind, f"{begin}hm</think>\n\nmaybe")[0]
    assert behind_thoughts(constraint, None, TOKENIZER, is_begun=is_begun) is constraint


def test_the_operators_settings_hold_where_a_request_has_none_of_its_own():
    tight = StructuredOutputsConfig(disable_any_whitespace=True, disable_additional_properties=True)
    schema = {"json": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
    loose, held = (use(usual=usual, structured_outputs=schema).constraint for usual in (USUAL, tight))
    own = use(usual=tight, structured_outputs=schema | {"whitespace_pattern": " "}).constraint
    for text, expected in (('{"a":1}', (True, True, True)), ('{"a": 1}', (True, False, True)), ('{"a":1,"b":2}', (True, False, False))):
        assert tuple(fits(constraint, text)[1] for constraint in (loose, held, own)) == expected, text


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"tools": [tool("f")]}, False),
        ({"tools": [tool("f"), 5, {"function": []}]}, False),
        ({"tools": [tool("f")], "tool_choice": "none"}, False),
        ({"tools": [tool("f")], "tool_choice": "required"}, True),
        ({"tools": [tool("f")], "tool_choice": {"type": "function"}}, True),
        ({"tools": [tool("f"), tool("g", strict=True)]}, True),
        ({"response_format": {"type": "text"}}, True),
        ({"structured_outputs": {}}, True),
    ],
)
def test_only_what_may_need_the_sandbox_waits_for_it(fields, expected):
    body = ChatRequest(model="m", messages=[{"role": "user", "content": "hi"}], **fields)
    assert is_asked_for(body) is expected
