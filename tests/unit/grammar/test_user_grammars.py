"""Grammars that come with a request: they describe text and nothing else, and those of llama.cpp mean what they mean there."""

import pytest
from tests.fakes.grammars import allowed_ids, compiled, vocabulary
from tests.fakes.vocabularies import byte_level_tokenizer

from octavo.constraints import StructuredOutputsParams
from octavo.errors import InvalidRequest
from octavo.grammar.compile import check
from octavo.grammar.gbnf import as_lark
from octavo.grammar.lark import prepared

TOKENIZER = byte_level_tokenizer()
WORDS = vocabulary(TOKENIZER)


def matches(text, **constraint):
    """Return whether the text is a whole answer."""
    matcher = compiled(WORDS, **constraint).open(TOKENIZER.encode(text, add_special_tokens=False))
    return matcher.error is None and (matcher.is_complete or set(TOKENIZER.eos_token_ids) <= set(allowed_ids(matcher)))


@pytest.mark.parametrize(
    "grammar",
    [
        "start: <[1]>",
        "start: <|im_start|>",
        "start: <[0]>",
        "start: <[*]>",
        "start: <[^1-2]>",
        "start: <|tool|>",
        'start: "a" | (<[5-9]>)+',
        'start: "// " <[1]>',
        "start: /#/ <[1]>",
        r'start: "\"" <[1]> "\""',
        'start: %json {"const": "x"} <[1]>',
        "start: t\nt[stop=<[1]>]: /.*/",
    ],
)
def test_tokens_cannot_be_named_in_a_grammar(grammar):
    with pytest.raises(InvalidRequest, match="tokens cannot be named") as raised:
        check(StructuredOutputsParams(grammar=grammar))
    assert raised.value.param == "structured_outputs.grammar"


@pytest.mark.parametrize(
    ("grammar", "answer"),
    [
        ('start: "<[1]>"', "<[1]>"),
        ("start: /<[1]>/", "<1>"),
        ('start: "a" // <[1]> @b\n', "a"),
        ('# <x>\nstart: "a" "@"', "a@"),
        ('start: %json {"const": "<x>"}', '"<x>"'),
        ('start: %json {\n  "enum": [1,\n 2]\n}\n | "b"', "2"),
        ('%llguidance {}\nstart: "a"', "a"),
        ('start: "A"i', "a"),
        (r"start: /\/<a>\//", "/<a>/"),
    ],
)
def test_what_only_looks_like_a_token_is_text(grammar, answer):
    assert matches(answer, grammar=grammar)


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('%llguidance {"no_forcing": true}\nstart: "a"', "options of the compiler"),
        ('start: %json {"x-guidance": {"lenient": true}, "not": {}}', "x-guidance"),
        ('start: %json {"properties": {"a": {"x-guidance": {}}}}', "x-guidance"),
        ('start: %json {"const": 9007199254740993}', "9007199254740993"),
        ('start: %json {"$ref": "http://127.0.0.1/"}', "parts of itself"),
        ("start: %json {", "cannot be held to"),
        ("start: %json NaN", "cannot be held to"),
        ('start: @other "a"', "other grammars"),
        ('start: "a', "no end"),
        ("start: /a", "no end"),
        ('{"grammars": [{"lark_grammar": "x"}],\nstart: 1}', "no rule"),
    ],
)
def test_the_compilers_options_and_what_schemas_may_not_hold_are_refused_in_grammars_too(grammar, reason):
    with pytest.raises(InvalidRequest, match=reason) as raised:
        check(StructuredOutputsParams(grammar=grammar))
    assert raised.value.param == "structured_outputs.grammar"


def test_blank_space_of_json_in_a_grammar_has_an_end():
    grammar = 'start: %json {"type": "object"}'
    assert matches("{" + " " * 16 + "}", grammar=grammar)
    assert not matches("{" + " " * 17 + "}", grammar=grammar)


def test_a_long_grammar_of_open_texts_takes_no_time():
    with pytest.raises(ValueError, match="no end"):
        prepared("grammar", 'start: "' + '\\"' * 30_000)


@pytest.mark.parametrize(
    ("grammar", "answer"),
    [
        (r'root ::= "\x41\u00e9\U0001F600"', "Aé😀"),
        (r'root ::= "\x22\x5c\x0a"', '"\\\n'),
        (r"root ::= [\u00e9-\u00eb]+ [\x5d\x2d]", "éë-"),
        (r"root ::= [\x41-\x43]+", "ABC"),
        (r'root ::= "\[\\x41\]"', r"[\x41]"),
        ('root ::= start "b"\nstart ::= "a" | start "c"', "acb"),
        ('root ::= re-start\nre-start ::= "a" # start\n', "a"),
        ('# start: of it\nroot ::= "start" [start]', "startt"),
    ],
)
def test_grammars_of_llama_cpp_are_read_as_it_reads_them(grammar, answer):
    assert matches(answer, grammar=grammar)
    assert not matches("?" + answer, grammar=grammar)


@pytest.mark.parametrize("grammar", [r'root ::= "\x01"', r'root ::= "\ud800"', r'root ::= "\U00110000"', "root ::= other", "nothing"])
def test_what_cannot_be_read_as_one_is_refused(grammar):
    with pytest.raises(ValueError):
        as_lark(grammar)


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        ({"json": {"$ref": "#"}}, "comes back to itself"),
        ({"json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}}, "comes back to itself"),
        ({"regex": "ab("}, "at character 3: unclosed group"),
        ({"regex": "(?<=a)b"}, "look-around"),
        ({"json": {"type": "string", "pattern": "("}}, "error in a pattern at character 1: unclosed group"),
        ({"json": {"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 5}]}}, "use anyOf"),
    ],
)
def test_what_is_wrong_is_said_in_words_that_help(constraint, words):
    with pytest.raises(InvalidRequest) as raised:
        check(StructuredOutputsParams(**constraint))
    assert words in raised.value.message and "\n" not in raised.value.message


def test_a_wrong_whitespace_pattern_is_blamed_and_not_the_schema():
    with pytest.raises(InvalidRequest, match="unclosed group") as raised:
        check(StructuredOutputsParams(json={}, whitespace_pattern="("))
    assert raised.value.param == "structured_outputs.whitespace_pattern"
