"""A format beside tools that may be called: what the model may write, and that it is read as what it is."""

import pytest
from tests.fakes.tool_texts import parse
from tests.fakes.tool_uses import PLACE, TOKENIZER, fits, parser, tool, use

from octavo.config.server_schema import StructuredOutputsConfig
from octavo.errors import InvalidRequest
from octavo.parsers.formats import REASONING_FORMATS
from octavo.parsers.json_calls import JsonCalls
from octavo.server.structured import behind_thoughts

NAMED = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}, "required": ["name", "n"]}
NAMED |= {"additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": NAMED}}
TOOLS = [tool("f", strict=True), tool("g")]
STRICT, FREE = '{"name": "f", "arguments": {"city": "Oslo"}}', '{"name": "g", "arguments": {"x": [1]}}'
F, G = ("f", '{"city": "Oslo"}'), ("g", '{"x": [1]}')
MATCHES = ['{"name": "f", "n": 5}', '{ "name":\n"<tool_call>",  "n": 1}']
MARKED = [
    (f"<tool_call>\n{STRICT}\n</tool_call>", [F]),
    (f"<tool_call>{FREE}</tool_call>\n<tool_call>\n{STRICT}</tool_call>", [G, F]),
    (f"<tool_call>[{FREE}, {STRICT}]</tool_call>", [G, F]),
]
BARE = [(STRICT, [F]), ('{"name":"g" , "arguments":\n{"x": [1]} }', [G])]
NEITHER = [
    "Hello.",
    " <tool_call>",
    '{"name": 5',
    '{"x',
    '{"name": "f", "n": 5} <',
    '<tool_call>{"name": "h',
    '<tool_call>{"name": "f", "arguments": {"town',
    '<tool_call>{"name": "g", "arguments": 5',
    f"<tool_call>{FREE}</tool_call> Well",
    f"<tool_call>[{FREE}]</tool_call> <",
    f"<tool_call>{FREE}</tool_call>" * 16 + "<",
    "<tool_call>[" + f"{FREE}, " * 16,
    f"<tool_call>{FREE}</tool_call>" + '{"',
]


def read(found, text):
    """The content and the calls, which do not depend on how the text is cut."""
    whole = parse(parser(found), [text])
    assert parse(parser(found), list(text)) == whole
    return whole.content, [tuple(call) for call in whole.calls]


@pytest.mark.parametrize("calls", ["hermes", "ernie45"])
def test_an_answer_is_a_match_or_calls(calls):
    found = use(calls, tools=TOOLS, response_format=FORMAT)
    for text in MATCHES:
        assert (fits(found.constraint, text), read(found, text)) == ((True, True), (text, [])), text
    for text, expected in MARKED:
        assert (fits(found.constraint, text), read(found, text)) == ((True, True), ("", expected)), text
    for text, expected in BARE:  # where models forget the mark
        is_call = calls == "hermes"
        assert fits(found.constraint, text)[1] == is_call
        assert read(found, text) == (("", expected) if is_call else (text, [])), text
    for text in NEITHER:
        assert not fits(found.constraint, text)[0], text


def test_one_call_at_most_where_parallel_ones_are_off():
    found = use(tools=TOOLS, response_format=FORMAT, parallel_tool_calls=False)
    assert [fits(found.constraint, text)[1] for text, _ in MARKED] == [True, False, False]
    assert fits(found.constraint, BARE[0][0])[1]


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json": {"properties": {"name": {}}}}},
        {"structured_outputs": {"json": NAMED, "whitespace_pattern": " ?"}},
        {"structured_outputs": {"json": NAMED | {"$id": "http://a"}}},
    ],
    ids=["any object", "open schema", "its own blank space", "named schema"],
)
def test_what_a_match_may_look_like_is_no_call_without_its_mark(fields):
    found = use(tools=TOOLS, **fields)
    assert found.constraint.calls.bare is None
    assert read(found, STRICT) == (STRICT, [])
    assert fits(found.constraint, MARKED[0][0]) == (True, True)


def test_blank_space_stays_as_the_format_has_it():
    tight = StructuredOutputsConfig(disable_any_whitespace=True)
    found = use(usual=tight, tools=TOOLS, response_format=FORMAT)
    assert fits(found.constraint, '{"name":"a","n":1}')[1] and not fits(found.constraint, '{ "name')[0]
    loose = use(tools=TOOLS, response_format=FORMAT)
    assert fits(loose.constraint, "{" + " " * 16)[0] and not fits(loose.constraint, "{" + " " * 17)[0]


def test_schemas_beside_one_another_keep_their_own_references():
    asked = {"$defs": {"a": {"enum": [1]}}, "type": "object", "properties": {"k": {"$ref": "#/$defs/a"}, "l": {"$ref": "#"}}}
    asked |= {"additionalProperties": False, "required": ["k"]}
    closed = {"properties": {"k": {"$ref": "#/$defs/a"}}, "required": ["k"], "$defs": {"a": {"enum": [2]}}, "additionalProperties": False}
    found = use(tools=[tool("f", closed, strict=True)], structured_outputs={"json": asked})
    call = '{{"name": "f", "arguments": {{"k": {}}}}}'.format
    assert fits(found.constraint, '{"k": 1, "l": {"k": 1}}') == fits(found.constraint, call(2)) == (True, True)
    assert not fits(found.constraint, '{"k": 2')[0] and not fits(found.constraint, '{"name": "f", "arguments": {"k": 1')[0]


@pytest.mark.parametrize(
    ("asked", "match", "wrong"),
    [
        ({"regex": "[a-z{]+"}, "ab{", "1"),
        ({"choice": ["yes", "no"]}, "no", "maybe"),
        ({"grammar": 'root ::= "x" root | "y"'}, "xxy", "xz"),
        ({"json": {"type": "array", "items": {"type": "integer"}}}, "[1, 2]", '["a'),
    ],
)
def test_every_kind_of_format_goes_with_calls(asked, match, wrong):
    found = use(tools=TOOLS, structured_outputs=asked)
    assert (fits(found.constraint, match), read(found, match)) == ((True, True), (match, []))
    assert not fits(found.constraint, wrong)[0]
    for text, expected in MARKED:
        assert (fits(found.constraint, text), read(found, text)) == ((True, True), ("", expected)), text


@pytest.mark.parametrize("asked", [{"regex": "<b>.*"}, {"choice": ["a", "<"]}, {"grammar": 'start: "a" | "<" "b"'}, {"regex": "(.|\n)*"}])
def test_a_format_that_may_begin_as_calls_do_is_refused_with_the_way_out(asked):
    with pytest.raises(InvalidRequest, match=r"may begin with '<'.*tool_choice none") as raised:
        use(tools=TOOLS, structured_outputs=asked)
    assert raised.value.param == f"structured_outputs.{next(iter(asked))}"


@pytest.mark.parametrize("calls", ["qwen3_coder", "pythonic", "mistral", "deepseek_v3"])
def test_calls_that_are_not_written_as_json_are_refused_with_the_way_out(calls):
    for field, value in (("response_format", FORMAT), ("structured_outputs", {"regex": "a"})):
        with pytest.raises(InvalidRequest, match="tool_choice none or required") as raised:
            use(calls, tools=TOOLS, **{field: value})
        assert (raised.value.code, raised.value.param) == ("unsupported_value", field)


def test_marks_may_be_control_tokens_one_each():
    marked = JsonCalls(openers=("<|header|>", "<other>"), closers=("<|/header|>",))
    found = use(marked, tools=TOOLS, response_format=FORMAT)
    ids = TOKENIZER.control_tokens
    assert (found.constraint.calls.open, found.constraint.calls.close) == (ids["<|header|>"], ids["<|/header|>"])
    text = f"<|header|>{STRICT}<|/header|><|header|>{FREE}"
    assert (fits(found.constraint, text), read(found, text)) == ((True, True), ("", [F, G]))
    assert not fits(found.constraint, "<")[0] and fits(found.constraint, MATCHES[0]) == (True, True)
    tag = use(marked, tools=TOOLS, response_format=TAG)
    text = f"Well <|header|>{STRICT}<|/header|> and <fn=a>" + '{"city": "a"}</fn>'
    assert fits(tag.constraint, text) == (True, True) and read(tag, text)[1] == [F]
    with pytest.raises(InvalidRequest, match="tool_choice none or required"):
        use(JsonCalls(openers=("<|header|><|end|>",)), tools=TOOLS, response_format=FORMAT)


def test_calls_have_the_names_that_a_model_gives_their_parts():
    found = use("llama3_json", tools=TOOLS, response_format=FORMAT)
    text = STRICT.replace("arguments", "parameters")
    assert (fits(found.constraint, text), read(found, text)) == ((True, True), ("", [F]))
    assert not fits(found.constraint, '{"name": "f", "a')[0]


TAG = {"type": "structural_tag", "structures": [{"begin": "<fn=a>", "schema": PLACE, "end": "</fn>"}], "triggers": ["<fn="]}


def test_in_a_structural_tag_calls_stand_in_the_text():
    found = use(tools=TOOLS, response_format=TAG)
    inner = '<fn=a>{"city": "<tool_call>"}</fn>'
    assert fits(found.constraint, f"So {inner} <tool_call>{STRICT}</tool_call> and {inner}") == (True, True)
    assert read(found, f"So {inner} <tool_call>{STRICT}</tool_call>") == (f"So {inner}", [F])
    assert fits(found.constraint, "plain") == (True, True) and fits(found.constraint, STRICT) == (True, True)
    assert read(found, STRICT) == (STRICT, [])
    for text in ("<fn=a>5", "<tool_call>5", '<tool_call>{"name": "f", "arguments": {"town'):
        assert not fits(found.constraint, text)[0], text


@pytest.mark.parametrize(
    ("begin", "trigger", "end"),
    [("<tool_call>", "<tool_call>", ""), ("<a>", "<", ""), ("<fn><tool_call>", "<fn>", ""), ("<fn>", "<fn>", "</fn><tool_")],
)
def test_a_structural_tag_whose_texts_overlap_with_the_mark_is_refused(begin, trigger, end):
    structures = [{"begin": begin, "schema": PLACE, "end": end}]
    with pytest.raises(InvalidRequest, match="overlap with '<tool_call>'") as raised:
        use(tools=TOOLS, response_format={"type": "structural_tag", "structures": structures, "triggers": [trigger]})
    assert raised.value.param == "response_format"


@pytest.mark.parametrize("is_begun", [True, False])
def test_reasoning_comes_first(is_begun):
    constraint = use(tools=TOOLS, response_format=FORMAT).constraint
    behind = behind_thoughts(constraint, REASONING_FORMATS["qwen3"], TOKENIZER, is_begun=is_begun)
    begin = "" if is_begun else "<think>"
    for text in (*MATCHES, MARKED[1][0], STRICT):
        assert fits(behind, f"{begin}hm, {{ <tool_call></think>\n\n{text}") == (True, True), text
        assert fits(behind, text)[1] == (not is_begun)
    assert not fits(behind, f"{begin}hm</think>\n\nWell")[0]


def test_forced_calls_leave_the_format_nothing_to_hold():
    for choice in ("required", {"type": "function", "function": {"name": "g"}}):
        assert use(tools=TOOLS, tool_choice=choice, response_format=FORMAT) == use(tools=TOOLS, tool_choice=choice)
        with pytest.raises(InvalidRequest) as raised:
            use(tools=TOOLS, tool_choice=choice, response_format={"type": "json_schema"})
        assert raised.value.param == "response_format.json_schema"


def test_only_allowed_tools_are_called_beside_a_format():
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]}
    found = use(tools=TOOLS, response_format=FORMAT, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert fits(found.constraint, f"<tool_call>{FREE}</tool_call>")[1] and not fits(found.constraint, '<tool_call>{"name": "f')[0]
    assert read(found, STRICT) == (STRICT, [])


def test_strict_tools_that_no_grammar_holds_are_refused_under_their_own_name():
    with pytest.raises(InvalidRequest) as raised:
        use(tools=[tool("f", strict=True, parameters={"properties": {"a": {"not": {}}}})], response_format=FORMAT)
    assert raised.value.param == "tools"


def test_a_model_whose_calls_are_unknown_needs_a_parser_beside_a_format_too():
    with pytest.raises(InvalidRequest, match="--tool-call-parser"):
        use(None, tools=TOOLS, response_format=FORMAT)
