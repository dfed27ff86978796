"""The offline LLM with the real model, held to what its answers must match."""

import json
import re

import pytest
from jsonschema import Draft202012Validator
from tests.real_models import path_or_skip

from octavo import LLM, SamplingParams, StructuredOutputsParams
from octavo.errors import InvalidRequest

pytestmark = pytest.mark.model

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "people": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    },
    "required": ["city", "people"],
    "additionalProperties": False,
}
ASK = [{"role": "user", "content": "Tell me of Paris."}]


@pytest.fixture(scope="module")
def llm():
    path = path_or_skip()
    return LLM(path, max_model_len=512, num_gpu_blocks_override=80)


def params(max_tokens=200, **constraint):
    return SamplingParams(max_tokens=max_tokens, temperature=0, structured_outputs=StructuredOutputsParams(**constraint))


def test_an_answer_to_a_schema_parses_and_is_whole(llm):
    several = params(json=SCHEMA)
    (answer,) = llm.chat(ASK, several, use_tqdm=False)
    assert answer.outputs[0].finish_reason == "stop"
    Draft202012Validator(SCHEMA).validate(json.loads(answer.outputs[0].text))


def test_choices_of_one_prompt_each_go_their_own_way(llm):
    sampled = SamplingParams(n=6, max_tokens=150, temperature=1.0, seed=4, structured_outputs=StructuredOutputsParams(json=SCHEMA))
    (answer,) = llm.chat(ASK, sampled, use_tqdm=False)
    whole = [choice.text for choice in answer.outputs if choice.finish_reason == "stop"]
    assert len(whole) >= 3 and len(set(whole)) > 1
    for text in whole:
        Draft202012Validator(SCHEMA).validate(json.loads(text))


@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [
        ({"choice": ["red", "blue"]}, "red|blue"),
        ({"regex": "(yes|no), because [a-z ]{5,40}"}, "(yes|no), because [a-z ]{5,40}"),
        ({"grammar": 'root ::= "<" [a-z]+ ">" root | "."'}, r"(<[a-z]+>)*\."),
        ({"json_object": True}, r"(?s)\{.*\}"),
    ],
)
def test_every_kind_holds(llm, constraint, pattern):
    sampled = SamplingParams(max_tokens=120, temperature=1.0, seed=1, structured_outputs=StructuredOutputsParams(**constraint))
    output = llm.chat(ASK, sampled, use_tqdm=False)[0].outputs[0]
    assert output.finish_reason == "length" or re.fullmatch(pattern, output.text), output.text


def test_an_answer_without_a_grammar_has_the_same_bits_beside_one_that_has(llm):
    free = SamplingParams(max_tokens=20, temperature=1.0, seed=3, logprobs=1)
    alone = llm.chat(ASK, free, use_tqdm=False)[0].outputs
    beside = llm.chat([ASK, ASK], [params(json=SCHEMA), free], use_tqdm=False)[1].outputs
    assert beside == alone


def test_a_mistake_in_a_constraint_is_an_invalid_request_as_others_are(llm):
    with pytest.raises(InvalidRequest, match="cannot be held to"):
        llm.chat(ASK, params(regex="("), use_tqdm=False)


def test_what_nothing_can_match_fails_one_request_in_plain_words(llm):
    impossible = SamplingParams(max_tokens=9, structured_outputs=StructuredOutputsParams(choice=["yes"]), allowed_token_ids=(5,))
    with pytest.raises(InvalidRequest, match="allowed_token_ids"):
        llm.chat(ASK, impossible, use_tqdm=False)
    assert llm.chat(ASK, params(choice=["yes"]), use_tqdm=False)[0].outputs[0].text == "yes"
