"""Answers that must match a schema, whatever happens to them: they match, they are those of the request alone, and so are the free ones
beside them. The real engine on a tiny random model at temperature 1, which writes noise wherever it may."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.fakes.grammars import compiled, draw_answer, vocabulary
from tests.fakes.history_worker import make_request
from tests.fakes.tiny_chat import write_tiny_chat
from tests.fakes.vocabularies import byte_level_tokenizer

from octavo.config.schema import CacheConfig, EngineConfig, ModelConfig, RuntimeConfig, SchedulerConfig
from octavo.constraints import StructuredOutputsParams
from octavo.engine.startup import start_engine
from octavo.loaders.load import read_text
from octavo.text.tokenizer import Tokenizer

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["a", "bc", 7, None]},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": -5, "maximum": 40}, "maxItems": 3},
    },
    "required": ["name", "kind", "sizes"],
    "additionalProperties": False,
}
REGIMES = {
    "batched": ({}, {}),
    "one step at a time": ({}, {"async_scheduling": False}),
    "chunked": ({}, {"max_num_batched_tokens": 19}),
    "preempted": ({"num_gpu_blocks_override": 18, "enable_prefix_caching": False}, {}),
    "prefix hits": ({}, {"max_num_seqs": 2, "max_num_batched_tokens": 64}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_chat(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def tokenizer(model):
    return Tokenizer.from_assets(read_text(model))


def start(model, cache, scheduler):
    pytest.importorskip("octavo.backends.native._native", reason="the native library is not built")
    config = EngineConfig(
        model=ModelConfig(model=str(model)),
        cache=CacheConfig(**{"num_gpu_blocks_override": 400, **cache}),
        scheduler=SchedulerConfig(**{"max_num_seqs": 8, "max_num_batched_tokens": 256, **scheduler}),
        runtime=RuntimeConfig(backend="native"),
    )
    return start_engine(config)[0]


def workload(tokenizer, seed):
    """Yield requests of which two in three must match something."""
    choose = random.Random(seed)
    common = [choose.randrange(5, tokenizer.vocab_size) for _ in range(40)]
    for number in range(12):
        constraint = [StructuredOutputsParams(json=SCHEMA), StructuredOutputsParams(regex="[a-f]{3,30}(-[0-9]{2}){1,5}"), None][number % 3]
        prompt = common + [choose.randrange(5, tokenizer.vocab_size) for _ in range(choose.randint(1, 20))]
        yield f"r{number}", prompt, {"structured_outputs": constraint, "temperature": 1.0, "max_tokens": 60 if constraint is None else 150}


def serve(core, tokenizer, requests, *, together=True, known=None, aborted=()):
    answers, ends, steps = {request_id: [] for request_id, _, _ in requests}, {}, 0
    for number, (request_id, prompt, params) in enumerate(requests):
        resume = known[request_id][: len(known[request_id]) // 2] if known else []
        answers[request_id].extend(resume)
        core.add(make_request(request_id, prompt, eos=tokenizer.eos_token_ids, resume=resume, **params))
        while core.has_work and (not together or number == len(requests) - 1):
            outputs = core.step()
            steps += outputs is not None
            if steps == 9:
                core.abort(aborted)
            for delta in outputs.deltas if outputs is not None else ():
                assert delta.request_id not in ends
                answers[delta.request_id].extend(delta.token_ids)
                if delta.finish_reason:
                    ends[delta.request_id] = delta.finish_reason
    assert len(ends) == len(requests)
    return answers, ends


def check_matches(tokenizer, requests, answers, ends):
    num_whole = 0
    for request_id, _, params in requests:
        constraint = params["structured_outputs"]
        if constraint is None or ends[request_id] != "stop":
            continue
        num_whole += 1
        text = tokenizer.decode(answers[request_id])
        if constraint.json is not None:
            Draft202012Validator(SCHEMA).validate(json.loads(text))
        else:
            assert re.fullmatch(constraint.regex, text), text
    return num_whole


@pytest.mark.parametrize("name", REGIMES)
def test_answers_match_and_are_those_of_the_request_alone(model, tokenizer, name):
    requests = list(workload(tokenizer, 5))
    alone, ends = serve(start(model, {}, {"async_scheduling": False}), tokenizer, requests, together=False)
    assert check_matches(tokenizer, requests, alone, ends) >= 5
    core = start(model, *REGIMES[name])
    crowd, crowd_ends = serve(core, tokenizer, requests)
    assert (crowd, crowd_ends) == (alone, ends)
    assert (core._scheduler.counters.preemptions > 0) == (name == "preempted"), "the regime is not what it says"
    resumed, resumed_ends = serve(core, tokenizer, requests, known=alone)
    assert (resumed, resumed_ends) == (alone, ends)


def test_an_abort_in_the_middle_changes_no_other_answer(model, tokenizer):
    requests = list(workload(tokenizer, 6))
    core = start(model, {}, {})
    alone, ends = serve(core, tokenizer, requests)
    gone = ["r0", "r1", "r2", "r6"]
    answers, others = serve(core, tokenizer, requests, aborted=gone)
    for request_id in alone:
        if others[request_id] == "abort":
            assert request_id in gone
        else:
            assert (answers[request_id], others[request_id]) == (alone[request_id], ends[request_id])
    assert "abort" in others.values()


TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=6)
LEAVES = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, st.integers(-300, 300), st.integers(0, 500)),
    st.builds(lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, st.integers(0, 3), st.integers(0, 4)),
    st.builds(lambda values: {"enum": values}, st.lists(TEXTS | st.integers(-9, 9), min_size=1, max_size=4)),
    st.builds(lambda value: {"const": value}, TEXTS),
    st.sampled_from([{"type": "string", "pattern": "^[a-c]+[0-9]{2}$", "maxLength": 9}, {"type": "string", "format": "date"}]),
)


def objects(inner):
    return st.builds(
        lambda properties, required, more: {
            "type": "object",
            "properties": properties,
            "required": [name for name, is_required in zip(properties, required, strict=False) if is_required],
            "additionalProperties": more,
        },
        st.dictionaries(TEXTS.filter(bool), inner, max_size=4),
        st.lists(st.booleans(), max_size=4),
        st.just(False),
    )


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        objects(inner)
        | st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 3))
        | st.builds(lambda several: {"anyOf": several}, st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=6,
)
WORDS = vocabulary(byte_level_tokenizer())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(schema=SCHEMAS, seed=st.integers(0, 1000), tight=st.booleans())
def test_what_is_drawn_from_a_schema_is_valid_under_it(schema, seed, tight):
    tokenizer = byte_level_tokenizer()
    whole = schema if schema.get("type") == "object" else {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    grammar = compiled(WORDS, json=whole, disable_any_whitespace=tight, disable_additional_properties=True)
    token_ids, matcher = draw_answer(grammar, tokenizer.eos_token_ids, seed, most=1500)
    assert matcher.error is None
    if matcher.is_complete:
        value = json.loads(b"".join(map(tokenizer.token_bytes, token_ids)))
        Draft202012Validator(whole).validate(value)
