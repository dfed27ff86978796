"""A request whose time is up has one answer: 504, or an error event where the stream has begun; the engine is told to stop."""

import pytest

from tests.api.calls import CHAT, COMPLETION, assert_openai_error, call, events, make_app, post
from tests.api.fake_engine import FakeEngine

LABELS = '{engine="0",model_name="tiny"}'
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/v1/responses": {"model": "tiny", "input": "hi"},
    "/v1/messages": {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]},
}


@pytest.fixture
def engine():
    """One that is stuck."""
    engine = FakeEngine()
    engine.running.clear()
    return engine


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_a_deadline_in_the_header_is_kept_on_every_endpoint(engine, path, is_stream):
    response = post(make_app(engine), path, BODIES[path] | {"stream": is_stream}, x_request_timeout_ms="20")
    error = response.json()["error"]
    assert response.status_code == 504
    assert "x-request-timeout-ms" in error["message"]
    assert error.get("code", "deadline_exceeded") == "deadline_exceeded"
    assert engine.num_unfinished == 0
    assert len(engine.aborted) == 1


@pytest.mark.parametrize("header", ["-1", "0", "x", "1.5", "", "99999999999", "1e3", "86400001"])
def test_a_header_that_is_no_time_is_refused(engine, header):
    response = post(make_app(engine), "/v1/completions", COMPLETION, x_request_timeout_ms=header)
    error = assert_openai_error(response)
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_value", "x-request-timeout-ms")
    assert not engine.requests


def test_a_stream_that_has_begun_ends_with_an_error_event(engine):
    engine.stall_at = 2
    engine.running.set()
    response = post(make_app(engine), "/v1/completions", COMPLETION | {"stream": True}, x_request_timeout_ms="200")
    *chunks, last = events(response)
    assert response.status_code == 200
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["i0", " one"]
    assert last["error"]["code"] == "deadline_exceeded"
    assert last["error"]["type"] == "server_error"
    assert len(engine.aborted) == 1


@pytest.mark.parametrize("headers", [{}, {"x_request_timeout_ms": "80000000"}])
def test_the_operators_time_is_the_longest(engine, headers):
    assert post(make_app(engine, request_timeout_s=0.02), "/v1/completions", COMPLETION, **headers).status_code == 504


def test_an_answer_in_time_is_whole():
    app = make_app(request_timeout_s=60)
    response = post(app, "/v1/completions", COMPLETION, x_request_timeout_ms="50000")
    assert response.json()["choices"][0]["text"] == "i0 one two three"


def test_the_ledger_counts_an_expired_request_as_cancelled(engine):
    app = make_app(engine)
    post(app, "/v1/completions", COMPLETION | {"n": 2}, x_request_timeout_ms="10")
    text = call(app, "GET", "/metrics").text
    assert f"vllm:requests_expired_total{LABELS} 1.0" in text
    assert 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"} 2.0' in text
    assert f"vllm:requests_in_flight{LABELS} 0.0" in text


def test_a_request_that_the_engine_refuses_for_its_age_is_503(engine):
    engine.running.set()
    engine.fail_at = 0
    engine.error_code = "server_overloaded"
    response = post(make_app(engine), "/v1/completions", COMPLETION)
    assert (response.status_code, assert_openai_error(response)["code"]) == (503, "server_overloaded")
    assert int(response.headers["retry-after"]) >= 1


def test_the_operators_stream_interval_holds_where_a_request_does_not_say():
    app = make_app(stream_interval=3)
    body = COMPLETION | {"stream": True, "max_tokens": 8}
    assert _tokens_an_event(app, "/v1/completions", body) == [1, 3, 3, 1]
    assert _tokens_an_event(app, "/v1/completions", body | {"stream_interval": 1}) == [1] * 8


def _tokens_an_event(app, path, body):
    return [len(event["choices"][0]["token_ids"]) for event in events(post(app, path, body | {"return_token_ids": True}))[:-1]]
