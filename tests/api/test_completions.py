"""Text completions: shapes, lists of prompts, echo, logprobs, streams."""

import pytest

from tests.api.calls import COMPLETION, events, make_app, post
from tests.api.fake_engine import FakeEngine

URL = "/v1/completions"


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def app(engine):
    return make_app(engine)


def test_an_answer_has_the_shape_of_openai(app):
    answer = post(app, URL, COMPLETION).json()
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["choices"] == [{"index": 0, "text": "i0 one two three", "logprobs": None, "finish_reason": "length", "stop_reason": None}]
    assert answer["usage"]["prompt_tokens"] == 2


def test_choices_of_several_prompts_stand_in_the_order_of_the_prompts(app):
    answer = post(app, URL, COMPLETION | {"prompt": ["a", "b", "c"], "n": 2, "max_tokens": 1}).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3, 4, 5]
    assert [choice["text"] for choice in answer["choices"]] == ["a0", "a1", "b0", "b1", "c0", "c1"]
    counts = {name: count for name, count in answer["usage"].items() if not name.endswith("details")}
    assert counts == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}


@pytest.mark.parametrize("prompt", [[104, 105], [[104, 105]], ["hi"], "hi"])
def test_a_prompt_may_be_text_or_token_ids_alone_or_in_a_list(app, engine, prompt):
    assert post(app, URL, COMPLETION | {"prompt": prompt}).json()["choices"][0]["text"] == "i0 one two three"
    assert engine.requests[-1][0] == [104, 105]


@pytest.mark.parametrize("prompt", ["hi", [104, 105]])
def test_echo_gives_the_prompt_back_first_once(app, prompt):
    body = COMPLETION | {"prompt": prompt, "echo": True, "n": 2}
    assert [choice["text"] for choice in post(app, URL, body).json()["choices"]] == ["hii0 one two three", "hii1 one two three"]
    *chunks, _ = events(post(app, URL, body | {"stream": True}))
    assert "".join(choice["text"] for chunk in chunks for choice in chunk["choices"] if choice["index"] == 1) == "hii1 one two three"


def test_logprobs_have_the_shape_of_completions(app):
    logprobs = post(app, URL, COMPLETION | {"logprobs": 1}).json()["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["i0", " one", " two", " three"]
    assert logprobs["token_logprobs"] == [-0.25] * 4
    assert logprobs["top_logprobs"][0] == {"i0": -0.25, "i01": -1.0}
    assert logprobs["text_offset"] == [0, 2, 6, 10]


@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"logprobs": 2}, {"prompt": ["a", "b"]}, {"echo": True}])
def test_a_stream_folds_to_the_answer_that_is_not_streamed(app, fields):
    whole = post(app, URL, COMPLETION | fields).json()
    *chunks, done = events(post(app, URL, COMPLETION | fields | {"stream": True}))
    assert done == "[DONE]"
    for choice in whole["choices"]:
        mine = [new for chunk in chunks for new in chunk["choices"] if new["index"] == choice["index"]]
        assert "".join(new["text"] for new in mine) == choice["text"]
        assert [new["finish_reason"] for new in mine if new["finish_reason"]] == [choice["finish_reason"]]
        if choice["logprobs"] is not None:
            for key, values in choice["logprobs"].items():
                assert [value for new in mine for value in new["logprobs"][key]] == values


def test_sixteen_tokens_are_the_default(app, engine):
    post(app, URL, {"model": "tiny", "prompt": "hi", "max_tokens": None})
    assert engine.requests[-1][1].max_tokens == 16


def test_one_refused_prompt_of_a_list_aborts_the_others(app, engine):
    response = post(app, URL, COMPLETION | {"prompt": [[1], [256]]})
    assert response.status_code == 400
    assert engine.num_unfinished == 0


def test_a_failure_of_one_prompt_aborts_the_others(app, engine):
    engine.fail_at = 1
    assert post(app, URL, COMPLETION | {"prompt": ["a", "b"]}).status_code == 500
    assert engine.num_unfinished == 0
