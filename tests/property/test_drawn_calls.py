"""Whatever a model may write where a format stands beside tools is read as what it is: calls that their schemas allow, or a match."""

import json

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace
from tests.fakes.grammars import draw_answer
from tests.fakes.tool_texts import parse
from tests.fakes.tool_uses import PLACE, TOKENIZER, WORDS, fits, parser, tool, use

from octavo.grammar.compile import compile_constraint

SIZE = {"type": "object", "properties": {"n": {"enum": [1, 22]}, "of": {"$ref": "#/$defs/of"}}, "required": ["n"]}
SIZE |= {"additionalProperties": False, "$defs": {"of": {"type": "boolean"}}}
SHORT = {"type": "string", "maxLength": 4}
CALL = {"type": "object", "properties": {"name": {"enum": ["f", "fg", "h"]}, "arguments": {"type": "integer"}}, "required": ["name"]}
TOOLS = [tool("f", strict=True), tool("g", strict=True, parameters=SIZE), tool("h")]
FORMATS = {
    "like a call": {"json": CALL | {"additionalProperties": False}},
    "schema": {"json": PLACE | {"properties": {"city": SHORT}}},
    "array": {"json": {"type": "array", "items": {"enum": ["<tool_call>", 1, None]}, "maxItems": 3}},
    "any object": {"json_object": True},
    "regex": {"regex": "[{a-c]{1,6}"},
    "choice": {"choice": ["{", '{"name": "f"', "no"]},
}


@pytest.mark.parametrize("calls", ["hermes", "ernie45", "llama3_json", "phi4_mini_json"])
@pytest.mark.parametrize("format", FORMATS)
def test_what_is_drawn_is_calls_or_a_match(calls, format):
    found = use(calls, tools=TOOLS, structured_outputs=FORMATS[format])
    grammar = compile_constraint(found.constraint, WORDS)
    alone = replace(found.constraint, calls=None)
    seen = set()
    for seed in range(30):
        token_ids, matcher = draw_answer(grammar, TOKENIZER.eos_token_ids, seed, most=300)
        assert matcher.error is None
        if not matcher.is_complete:
            continue
        text = TOKENIZER.decode(token_ids, skip_special_tokens=False)
        answer = parse(parser(found), [text])
        assert parse(parser(found), list(text)) == answer
        seen.add(bool(answer.calls))
        if not answer.calls:
            assert answer.content == text and fits(alone, text) == (True, True), text
            continue
        assert answer.content.strip() == "" and not fits(alone, text)[1], text
        for name, arguments in answer.calls:
            schema = {"f": PLACE, "g": SIZE, "h": {"type": "object"}}[name]
            assert Draft202012Validator(schema).is_valid(json.loads(arguments)), text
    assert seen
