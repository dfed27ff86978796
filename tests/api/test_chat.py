"""Chat completions: shapes, streams, several choices, defaults, and what reaches the engine."""

import pytest

from tests.api.calls import CHAT, events, make_app, post
from tests.api.fake_engine import MAX_MODEL_LEN, FakeEngine

URL = "/v1/chat/completions"


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def app(engine):
    return make_app(engine)


def fold(chunks):
    """What a client makes of a stream: choice index -> (role, text, finish reasons, logprob tokens)."""
    folded = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            role, text, reasons, tokens = folded.get(choice["index"], (None, "", [], []))
            delta = choice["delta"]
            tokens = tokens + [entry["token"] for entry in (choice["logprobs"] or {"content": []})["content"]]
            reasons = reasons + [choice["finish_reason"]] * (choice["finish_reason"] is not None)
            folded[choice["index"]] = (delta.get("role", role), text + delta.get("content", ""), reasons, tokens)
    return folded


def test_an_answer_has_the_shape_of_openai(app):
    answer = post(app, URL, CHAT).json()
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "tiny"
    assert answer["system_fingerprint"].startswith("fp_")
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": ":0 one two three", "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
        }
    ]
    prompt_tokens = len("user: hi\nassistant:")
    assert answer["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 4,
        "total_tokens": prompt_tokens + 4,
        "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


@pytest.mark.parametrize("fields", [{}, {"n": 3}, {"logprobs": True, "top_logprobs": 2}, {"n": 2, "logprobs": True}, {"max_tokens": 1}])
def test_a_stream_folds_to_the_answer_that_is_not_streamed(app, fields):
    whole = post(app, URL, CHAT | fields).json()
    *chunks, done = events(post(app, URL, CHAT | fields | {"stream": True}))
    assert done == "[DONE]"
    folded = fold(chunks)
    for choice in whole["choices"]:
        tokens = [entry["token"] for entry in (choice["logprobs"] or {"content": []})["content"]]
        assert folded[choice["index"]] == ("assistant", choice["message"]["content"], [choice["finish_reason"]], tokens)
    assert len(folded) == len(whole["choices"])


def test_every_chunk_has_a_finish_reason_key_and_the_first_has_the_role(app):
    *chunks, _ = events(post(app, URL, CHAT | {"stream": True}))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("finish_reason" in choice for chunk in chunks for choice in chunk["choices"])
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all(chunk["choices"][0]["delta"].get("content") for chunk in chunks[1:-1])


def test_usage_comes_once_just_before_done_and_only_if_asked(app):
    *chunks, last, done = events(post(app, URL, CHAT | {"stream": True, "stream_options": {"include_usage": True}}))
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4
    assert all(chunk["usage"] is None for chunk in chunks)
    assert not any("usage" in chunk for chunk in events(post(app, URL, CHAT | {"stream": True}))[:-1])


def test_logprobs_have_the_shape_of_chat(app):
    answer = post(app, URL, CHAT | {"logprobs": True, "top_logprobs": 2}).json()
    first = answer["choices"][0]["logprobs"]["content"][0]
    assert first["token"] == ":0"
    assert first["bytes"] == [ord(":"), ord("0")]
    assert [candidate["token"] for candidate in first["top_logprobs"]] == [":01", ":02"]


def test_what_is_not_said_comes_from_the_models_files_and_then_from_openai(app, engine):
    post(app, URL, {"model": "tiny", "messages": CHAT["messages"]})
    params = engine.requests[-1][1]
    assert (params.temperature, params.top_p, params.n) == (0.6, 1.0, 1)
    assert params.max_tokens == MAX_MODEL_LEN - len("user: hi\nassistant:")


def test_what_is_said_reaches_the_engine(app, engine):
    said = {
        "temperature": 0, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.1,
        "seed": -3, "stop": ["a", "b"], "stop_token_ids": [3], "min_tokens": 2, "ignore_eos": True, "skip_special_tokens": False,
        "include_stop_str_in_output": True, "logit_bias": {"5": -100}, "n": 2,
    }  # fmt: skip
    assert post(app, URL, CHAT | said).status_code == 200
    params = engine.requests[-1][1]
    for name, value in said.items():
        expected = {"stop": ("a", "b"), "stop_token_ids": (3,), "logit_bias": {5: -100.0}}.get(name, value)
        assert getattr(params, name) == expected, name


def test_a_final_message_is_continued_and_not_answered(app, engine):
    messages = [*CHAT["messages"], {"role": "assistant", "content": "Well"}]
    post(app, URL, CHAT | {"messages": messages, "continue_final_message": True})
    assert bytes(engine.requests[-1][0]) == b"user: hi\nassistant: Well"


def test_an_error_before_the_first_event_has_its_status_in_both_modes(app, engine):
    engine.fail_at = 0
    for stream in (False, True):
        response = post(app, URL, CHAT | {"stream": stream})
        assert response.status_code == 500
        assert response.json()["error"] == {
            "message": "the logits hold NaN",
            "type": "server_error",
            "param": None,
            "code": "request_failed",
        }


def test_an_error_midway_is_the_last_event_and_there_is_no_done(app, engine):
    engine.fail_at = 2
    *chunks, last = events(post(app, URL, CHAT | {"stream": True}))
    assert last["error"]["code"] == "request_failed"
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks] == ["", ":0", " one"]
    assert post(app, URL, CHAT).status_code == 500


def test_a_model_may_be_asked_for_by_each_of_its_names(app):
    assert post(app, URL, CHAT | {"model": "tiny-alias"}).json()["model"] == "tiny-alias"


@pytest.mark.parametrize("body", [CHAT, CHAT | {"stream": True}], ids=["whole", "streamed"])
def test_every_answer_has_each_header_once_however_many_came_before(body):
    app = make_app()
    ids = set()
    for _ in range(3):
        headers = post(app, "/v1/chat/completions", body).headers
        names = [name.lower() for name, _ in headers.raw]
        assert len(names) == len(set(names)), names
        ids.add(headers["x-request-id"])
    assert len(ids) == 3
