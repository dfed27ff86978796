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


FOLDED = [
    {}, {"n": 2}, {"logprobs": 2}, {"prompt": ["a", "b"]}, {"echo": True}, {"echo": True, "logprobs": 1, "n": 2}, {"stream_interval": 3},
    {"echo": True, "max_tokens": 0, "logprobs": 0}, {"prompt_logprobs": 1, "return_token_ids": True, "stream_interval": 2},
]  # fmt: skip


@pytest.mark.parametrize("fields", FOLDED, ids=str)
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
                assert [value for new in mine if new["logprobs"] for value in new["logprobs"][key]] == values
        for key in {"prompt_logprobs", "prompt_token_ids"} & set(choice):
            assert [new[key] for new in mine if key in new] == [choice[key]]


def test_echo_with_logprobs_gives_those_of_the_prompt_first_and_null_for_its_first_token(app, engine):
    body = COMPLETION | {"prompt": "abc", "echo": True, "logprobs": 1, "max_tokens": 1}
    choice = post(app, URL, body).json()["choices"][0]
    assert choice["text"] == "abcc0"
    assert choice["logprobs"] == {
        "tokens": ["a", "b", "c", "c0"],
        "token_logprobs": [None, -0.25, -0.25, -0.25],
        "top_logprobs": [None, {"b": -0.25, "b1": -1.0}, {"c": -0.25, "c1": -1.0}, {"c0": -0.25, "c01": -1.0}],
        "text_offset": [0, 1, 2, 3],
    }
    assert engine.requests[-1][1].prompt_logprobs == 1


def test_max_tokens_zero_gives_the_prompt_alone(app):
    answer = post(app, URL, COMPLETION | {"prompt": "abc", "echo": True, "logprobs": 0, "max_tokens": 0}).json()
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert choice["logprobs"]["tokens"] == ["a", "b", "c"]
    assert answer["usage"]["completion_tokens"] == 0


def test_max_tokens_zero_without_echo_is_refused(app):
    error = post(app, URL, COMPLETION | {"max_tokens": 0}).json()["error"]
    assert (error["code"], error["param"]) == ("integer_below_min_value", "max_tokens")


def test_offsets_count_characters_of_the_text_where_tokens_share_one(app):
    logprobs = post(app, URL, COMPLETION | {"prompt": "é!", "echo": True, "logprobs": 0, "max_tokens": 0}).json()["choices"][0]["logprobs"]
    assert logprobs["text_offset"][0] == 0
    assert len(logprobs["tokens"]) == 3


def test_prompt_logprobs_name_each_token_by_its_id(app):
    choice = post(app, URL, COMPLETION | {"prompt": "ab", "prompt_logprobs": 0}).json()["choices"][0]
    assert choice["prompt_logprobs"] == [None, {"98": {"logprob": -0.25, "rank": 1, "decoded_token": "b"}}]
    assert choice["logprobs"] is None


def test_token_ids_are_returned_when_they_are_asked_for(app):
    choice = post(app, URL, COMPLETION | {"prompt": "ab", "return_token_ids": True}).json()["choices"][0]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([97, 98], [0, 1, 2, 3])


def test_tokens_may_be_shown_as_ids(app):
    body = COMPLETION | {"prompt": "ab", "echo": True, "logprobs": 0, "max_tokens": 1, "return_tokens_as_token_ids": True}
    assert post(app, URL, body).json()["choices"][0]["logprobs"]["tokens"] == ["token_id:97", "token_id:98", "token_id:0"]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"truncate_prompt_tokens": 2}, "ef"),
        ({"truncate_prompt_tokens": 2, "truncation_side": "right"}, "ab"),
        ({"truncate_prompt_tokens": 100}, "abcdef"),
        ({"truncate_prompt_tokens": -1, "max_tokens": 510}, "ef"),
    ],
)
def test_a_prompt_is_truncated_only_as_asked(app, engine, fields, kept):
    assert post(app, URL, COMPLETION | {"prompt": "abcdef"} | fields).status_code == 200
    assert bytes(engine.requests[-1][0]).decode() == kept


@pytest.mark.parametrize("fields", [{"truncate_prompt_tokens": 0}, {"truncate_prompt_tokens": 513}, {"truncation_side": "left"}])
def test_truncation_that_cannot_be_is_refused(app, fields):
    assert post(app, URL, COMPLETION | fields).status_code == 400


def test_a_stream_interval_joins_tokens_but_for_the_first(app):
    *chunks, _ = events(post(app, URL, COMPLETION | {"stream": True, "stream_interval": 2}))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["i0", " one two", " three"]


def test_running_usage_stands_on_every_chunk(app):
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, _ = events(post(app, URL, COMPLETION | {"stream": True, "stream_options": options}))
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [1, 2, 3, 4, 4]


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
