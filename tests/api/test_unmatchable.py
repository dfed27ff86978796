"""An answer that cannot match what it must is the request's own mistake: 400 with the field's name, or the last event of its stream."""

import pytest

from tests.api.calls import CHAT, COMPLETION, assert_openai_error, events, make_app, post
from tests.api.fake_engine import FakeEngine

BOTH = pytest.mark.parametrize(("url", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)], ids=["chat", "text"])
FORMAT = {"response_format": {"type": "json_object"}}
CHOICE = {"structured_outputs": {"choice": ["a"]}}


@pytest.fixture
def engine():
    engine = FakeEngine()
    engine.error_code = "invalid_grammar"
    return engine


@BOTH
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("fields", [FORMAT, CHOICE], ids=["format", "choice"])
def test_before_the_answer_has_begun_it_is_a_bad_request(engine, url, body, fields, is_stream):
    engine.fail_at = 0
    response = post(make_app(engine), url, body | fields | {"stream": is_stream})
    error = assert_openai_error(response)
    assert response.status_code == 400
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_value", next(iter(fields)))


@BOTH
def test_in_a_stream_it_is_the_last_event_as_other_failures_are(engine, url, body):
    engine.fail_at = 2
    response = post(make_app(engine), url, body | CHOICE | {"stream": True})
    assert response.status_code == 200
    assert events(response)[-1]["error"]["param"] == "structured_outputs"
    assert "[DONE]" not in response.text


def test_other_apis_call_the_field_by_their_own_name(engine):
    engine.fail_at = 0
    app = make_app(engine)
    response = post(app, "/v1/responses", {"model": "tiny", "input": "hi", "text": {"format": {"type": "json_object"}}})
    assert (response.status_code, assert_openai_error(response)["param"]) == (400, "text.format")
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    messages = {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}], "output_config": {"format": schema}}
    response = post(app, "/v1/messages", messages)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
