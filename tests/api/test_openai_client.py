"""The official client, validating strictly, against a real socket."""

import openai
import pytest

from tests.api.calls import make_app
from tests.api.fake_engine import FakeEngine
from tests.api.live import live

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def engine():
    return FakeEngine()


@pytest.fixture(scope="module")
def server(engine):
    with live(make_app(engine, api_key=("sk-test",))) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0, _strict_response_validation=True) as client:
        yield client


def test_models_are_listed_and_found(client):
    assert [model.id for model in client.models.list()] == ["tiny", "tiny-alias"]
    assert client.models.retrieve("tiny").owned_by == "octavo"


def test_a_chat_is_answered(client):
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4, logprobs=True, top_logprobs=2)
    assert answer.choices[0].message.content == ":0 one two three"
    assert answer.choices[0].logprobs.content[0].top_logprobs[1].token == ":02"
    assert answer.usage.prompt_tokens_details.cached_tokens == 16


def test_a_chat_is_streamed(client):
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=MESSAGES, max_tokens=4, n=2, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == 1)
    assert text == ":1 one two three"
    assert chunks[-1].usage.completion_tokens == 8


def test_a_text_is_completed(client):
    answer = client.completions.create(model="tiny", prompt=["a", "b"], max_tokens=2, logprobs=1)
    assert [choice.text for choice in answer.choices] == ["a0 one", "b0 one"]
    assert answer.choices[0].logprobs.text_offset == [0, 2]


def test_a_completion_is_streamed(server):
    """Not strict: the client's type for a chunk has no null finish_reason, which OpenAI's own chunks have."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0) as client:
        chunks = list(client.completions.create(model="tiny", prompt="a", max_tokens=3, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "a0 one two"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "length"]


def test_mistakes_raise_the_right_class(client, server):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=3)
    assert (refused.value.code, refused.value.param) == ("decimal_above_max_value", "temperature")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4", messages=MESSAGES)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-wrong", max_retries=0) as other, pytest.raises(openai.AuthenticationError):
        other.models.list()


def test_a_failure_midway_raises_an_api_error(client, engine):
    engine.fail_at = 2
    try:
        with pytest.raises(openai.APIError, match="NaN"):
            list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="tiny", messages=MESSAGES)
    finally:
        engine.fail_at = None


def test_an_evaluation_gets_the_logprobs_of_its_text(server):
    """Not strict: the client's type has no null for the first token, which OpenAI's own answers have."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0) as client:
        answer = client.completions.create(model="tiny", prompt="abc", max_tokens=1, logprobs=1, echo=True, temperature=0)
    logprobs = answer.choices[0].logprobs
    assert logprobs.token_logprobs == [None, -0.25, -0.25, -0.25]
    assert logprobs.tokens == ["a", "b", "c", "c0"]
    assert logprobs.top_logprobs[1] == {"b": -0.25, "b1": -1.0}


def test_fields_beyond_openais_are_taken_and_given_back(client):
    more = {"bad_words": ["x"], "return_token_ids": True, "prompt_logprobs": 0, "cache_salt": "s", "min_p": 0.1, "stream_interval": 2}
    chat = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4, extra_body=more)
    assert chat.choices[0].token_ids == [0, 1, 2, 3]
    assert len(chat.prompt_logprobs) == len(chat.prompt_token_ids)
    chunks = list(client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=4, stream=True, extra_body=more))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ":0 one two three"


def test_every_kind_of_refusal_raises_its_class(client, server, engine):
    for fields, code in (({"max_tokens": 10**6}, "context_length_exceeded"), ({"extra_body": {"nonsense": 1}}, "unknown_parameter")):
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="tiny", messages=MESSAGES, **fields)
        assert refused.value.code == code
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="tiny", prompt="a", suffix="b")
    with pytest.raises(openai.PermissionDeniedError):
        client.completions.create(model="tiny", prompt="a", extra_headers={"origin": "http://evil.example"})
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")
    engine.last_error = "gone"
    try:
        with pytest.raises(openai.InternalServerError) as failed:
            client.completions.create(model="tiny", prompt="a")
        assert (failed.value.status_code, failed.value.code) == (503, "engine_unavailable")
    finally:
        engine.last_error = None
