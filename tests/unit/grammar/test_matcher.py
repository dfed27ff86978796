"""Matchers over all kinds of tokenizers: what is allowed, when an answer is complete, what goes wrong and how it shows."""

import json
import re

import pytest
from tests.fakes.grammars import allowed_ids, compiled, draw_answer, vocabulary
from tests.fakes.tiny_chat import write_tiny_chat
from tests.fakes.vocabularies import byte_level_tokenizer, sentencepiece_tokenizer

from octavo.errors import InvalidRequest
from octavo.loaders.load import read_text
from octavo.text.tokenizer import Tokenizer

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=["gguf bytes", "gguf pieces", "json"])
def tokenizer(request, tmp_path_factory):
    if request.param == "json":
        return Tokenizer.from_assets(read_text(write_tiny_chat(tmp_path_factory.mktemp("chat"))))
    return byte_level_tokenizer() if request.param == "gguf bytes" else sentencepiece_tokenizer()


@pytest.fixture(scope="module")
def words(tokenizer):
    return vocabulary(tokenizer)


def text_of(tokenizer, token_ids):
    return b"".join(map(tokenizer.token_bytes, token_ids)).decode()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_drawn_matches(tokenizer, words, seed):
    kinds = {
        "json": (PERSON, lambda text: set(json.loads(text)) == {"name", "age"}),
        "regex": ("[a-c]{2,4}-[0-9]+", lambda text: re.fullmatch("[a-c]{2,4}-[0-9]+", text)),
        "choice": (["yes", "no", 'né "\\'], lambda text: text in ("yes", "no", 'né "\\')),
        "grammar": ('root ::= "a" root "b" | "ab"', lambda text: text and text == "a" * (len(text) // 2) + "b" * (len(text) // 2)),
        "json_object": (True, lambda text: isinstance(json.loads(text), dict)),
    }
    for kind, (value, matches) in kinds.items():
        token_ids, matcher = draw_answer(compiled(words, **{kind: value}), tokenizer.eos_token_ids, seed, most=600)
        assert matcher.error is None
        if matcher.is_complete:
            assert matches(text_of(tokenizer, token_ids)), kind


def test_no_control_token_is_allowed_within_an_answer(tokenizer, words):
    matcher = compiled(words, regex="(.|\n)*").open()
    ids = set(allowed_ids(matcher))
    control = set(tokenizer.control_tokens.values())
    assert ids & control == set(tokenizer.eos_token_ids)
    assert len(ids) > 50


def test_the_end_is_allowed_exactly_where_the_answer_is_whole(tokenizer, words):
    grammar = compiled(words, regex="ab?")
    ending = set(tokenizer.eos_token_ids)
    matcher = grammar.open()
    assert not ending & set(allowed_ids(matcher))
    matcher.accept(tokenizer.encode("ca", add_special_tokens=False)[-1])
    assert ending <= set(allowed_ids(matcher)) and not matcher.is_complete
    matcher.accept(min(ending))
    assert matcher.is_complete and matcher.error is None


def test_a_matcher_that_reads_what_is_known_goes_on_as_the_first_did(tokenizer, words):
    grammar = compiled(words, json=PERSON)
    token_ids, _ = draw_answer(grammar, tokenizer.eos_token_ids, 7)
    first = grammar.open()
    for number, token_id in enumerate(token_ids):
        assert allowed_ids(first) == allowed_ids(grammar.open(token_ids[:number]))
        first.accept(token_id)


def test_a_refused_token_is_an_error_that_stays_and_touches_no_other_matcher(tokenizer, words):
    grammar = compiled(words, choice=["yes"])
    bad, good = grammar.open(), grammar.open()
    bad.accept(tokenizer.encode("ab", add_special_tokens=False)[-1])
    assert "allows" in bad.error
    before = bad.error
    bad.fill()
    bad.accept(0)
    assert bad.error == before
    assert good.error is None and allowed_ids(good)


def test_ids_that_the_tokenizer_does_not_have_are_never_allowed(tokenizer):
    wide = vocabulary(tokenizer, tokenizer.vocab_size + 70)
    matcher = compiled(wide, regex="(.|\n)*").open()
    assert max(allowed_ids(matcher)) < tokenizer.vocab_size
    assert matcher.allowed.size == -(-(tokenizer.vocab_size + 70) // 32)


def test_blank_space_has_an_end(tokenizer, words):
    matcher = compiled(words, json_object=True).open()
    for text in ("{", *("\n" * 40)):
        matcher.accept(tokenizer.encode("x" + text, add_special_tokens=False)[-1])
    assert matcher.error is not None


@pytest.mark.parametrize(
    "constraint",
    [
        {"grammar": "start: start"},
        {"json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}},
        {"json": {"type": "integer", "minimum": 5, "maximum": 1}},
        {"json": {"type": "number", "multipleOf": 0}},
        {"json": {"type": "nope"}},
        {"json": {"type": 5}},
        {"json": {"enum": []}},
        {"json": {"type": "string", "pattern": "("}},
        {"regex": "("},
        {"regex": "(?<=a)b"},
        {"grammar": "no grammar at all"},
        {"grammar": "root ::= other"},
        {"structural_tag": {"structures": [], "triggers": ["<"]}},
        {"structural_tag": {"structures": [{"begin": "a", "schema": {}}], "triggers": ["<"]}},
    ],
    ids=str,
)
def test_what_cannot_be_held_to_is_refused_by_name_and_in_time(words, constraint):
    (kind,) = constraint
    with pytest.raises(InvalidRequest, match=f"structured_outputs.{kind} cannot be held to") as raised:
        compiled(words, **constraint)
    assert raised.value.param == f"structured_outputs.{kind}"


def test_structural_tags_leave_text_free_and_hold_what_a_trigger_begins(tokenizer, words):
    tag = {
        "structures": [{"begin": "<f=a>", "schema": PERSON, "end": "</f>"}, {"begin": "<f=b>", "schema": {}, "end": ""}],
        "triggers": ["<f="],
    }
    grammar = compiled(words, structural_tag=tag)

    def reads(text):
        matcher = grammar.open(tokenizer.encode(text, add_special_tokens=False))
        return matcher.error is None

    assert reads("any text < f=") and reads('x <f=a>{"name": "a", "age": 1}</f> and <f=b>[1]') and reads("")
    assert not reads("x <f=c") and not reads('x <f=a>{"age') and not reads("<f=a>[")
