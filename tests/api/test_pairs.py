"""Every two ways of sampling together: each field absent, null, at its borders or between them; and one of them beyond, which is named."""

import itertools
import math
import random

import pytest

from octavo.server.openai.schemas import ChatRequest, CompletionRequest
from tests.api.calls import CHAT, COMPLETION, assert_openai_error, make_app, post

TOGETHER = {"min_tokens", "max_tokens", "max_completion_tokens", "best_of", "top_logprobs", "logprobs", "truncate_prompt_tokens", "n"}
TOGETHER |= {"stream", "continue_final_message", "add_generation_prompt"}  # bound by one another, and tested elsewhere
ABSENT = object()
WAYS = [("/v1/chat/completions", CHAT, ChatRequest), ("/v1/completions", COMPLETION, CompletionRequest)]
both = pytest.mark.parametrize(("url", "body", "schema"), WAYS, ids=["chat", "text"])


def levels(schema):
    """Return for each number and switch of a schema the values that it takes, and those just beyond."""
    taken, beyond = {}, {}
    for name, field in schema.model_json_schema()["properties"].items():
        kinds = [variant for variant in field.get("anyOf", [field]) if variant.get("type") in ("integer", "number", "boolean")]
        if name in TOGETHER or len(kinds) != 1:
            continue
        (kind,) = kinds
        taken[name], beyond[name] = [ABSENT, None], ["x", [], {}]
        if kind["type"] == "boolean":
            taken[name] += [True, False]
            beyond[name] += [1]
            continue
        low, high = kind.get("minimum", kind.get("exclusiveMinimum")), kind["maximum"]
        is_open = "exclusiveMinimum" in kind
        first = low if not is_open else math.nextafter(low, high)
        middle = (low + high) // 2 if kind["type"] == "integer" else (low + high) / 2
        taken[name] += [first, middle, high]
        beyond[name] += [low if is_open else low - 1, high + 1, True]
    return taken, beyond


def covering(taken):
    """Return rows such that any two values of two fields stand together in one."""
    shuffled = random.Random(1)
    items = {name: [(name, place) for place in range(len(values))] for name, values in taken.items()}
    missing = {frozenset(pair) for one, other in itertools.combinations(items, 2) for pair in itertools.product(items[one], items[other])}
    rows = []
    while missing:
        row = dict(min(missing, key=sorted))
        for name in shuffled.sample(sorted(items), len(items)):
            if name not in row:
                new = [sum(frozenset((item, other)) in missing for other in row.items()) for item in items[name]]
                row[name] = max(range(len(new)), key=lambda place: (new[place], shuffled.random()))
        missing -= {frozenset(pair) for pair in itertools.combinations(row.items(), 2)}
        rows.append(row)
    return rows


def as_fields(taken, row):
    values = {name: taken[name][place] for name, place in row.items()}
    return {name: value for name, value in values.items() if value is not ABSENT}


@both
def test_any_two_values_that_are_taken_are_taken_together_and_one_beyond_is_named(url, body, schema):
    app = make_app()
    taken, beyond = levels(schema)
    assert len(taken) >= 15
    spoiled = itertools.cycle((name, value) for name in beyond for value in beyond[name])
    for row in covering(taken):
        fields = as_fields(taken, row)
        response = post(app, url, body | fields)
        assert response.status_code == 200, (fields, response.text)
        name, value = next(spoiled)
        assert assert_openai_error(post(app, url, body | fields | {name: value}))["param"] == name
