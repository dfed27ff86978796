"""What users of other servers ran into, as the right behaviour here; each test is named for its case."""

import asyncio
import json
import threading
import time

import httpx
import pytest

from octavo.errors import InvalidRequest
from octavo.server.body import parse_json_object
from tests.api.asgi_client import Client, until
from tests.api.calls import CHAT, COMPLETION, assert_openai_error, call, events, make_app, post
from tests.api.fake_engine import MAX_MODEL_LEN, FakeEngine

CHAT_URL, TEXT_URL = "/v1/chat/completions", "/v1/completions"
BOTH = pytest.mark.parametrize(("url", "body"), [(CHAT_URL, CHAT), (TEXT_URL, COMPLETION)], ids=["chat", "text"])


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def app(engine):
    return make_app(engine)


def streamed(app, url, body, **fields):
    return events(post(app, url, body | {"stream": True} | fields))


def test_c16_c17_c18_health_is_answered_while_a_text_is_tokenised_and_the_engine_is_busy(engine, app):
    may_end = threading.Event()

    def encode(text, **_):
        may_end.wait(30)
        return [1]

    async def run():
        engine.tokenizer.encode = encode
        engine.running.clear()
        client = Client(TEXT_URL, COMPLETION)
        answering = asyncio.create_task(app(client.scope, client.receive, client.send))
        await asyncio.sleep(0)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as other:
            assert [(await other.get(path)).status_code for path in ("/health", "/livez", "/metrics")] == [200] * 3
            may_end.set()
            await until(lambda: engine.num_unfinished == 1)
            assert [(await other.get(path)).status_code for path in ("/health", "/livez", "/metrics")] == [200] * 3
        engine.running.set()
        await answering

    asyncio.run(run())


def test_c29_a_name_may_be_used_again_at_once(app):
    assert [post(app, TEXT_URL, COMPLETION | {"request_id": "again"}).json()["id"] for _ in range(3)] == ["cmpl-again"] * 3


@BOTH
def test_c34_no_chunk_is_empty_but_the_first_of_a_chat(app, engine, url, body):
    engine.says = ["a", "", "", "b", ""]
    *chunks, _ = streamed(app, url, body, max_tokens=5)
    texts = [chunk["choices"][0].get("text", chunk["choices"][0].get("delta", {}).get("content")) for chunk in chunks]
    assert "".join(text or "" for text in texts) == "ab"
    empty = [chunk for chunk, text in zip(chunks, texts, strict=True) if not text and not chunk["choices"][0]["finish_reason"]]
    assert len(empty) == (url == CHAT_URL)


@BOTH
@pytest.mark.parametrize("fields", [{}, {"n": 3}, {"stream_interval": 3}, {"stream_options": {"include_usage": True}}], ids=str)
def test_c38_c41_c43_every_choice_ends_once_with_a_reason_and_the_stream_with_one_done(app, url, body, fields):
    *chunks, done = streamed(app, url, body, **fields)
    assert done == "[DONE]" and "[DONE]" not in chunks
    reasons = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert choice["finish_reason"] is None or choice["finish_reason"]
            reasons.setdefault(choice["index"], []).append(choice["finish_reason"])
    assert len(reasons) == fields.get("n", 1)
    for of_choice in reasons.values():
        assert [reason for reason in of_choice if reason] == ["length"]
        assert of_choice[-1] == "length"


@BOTH
@pytest.mark.parametrize("at", [0, 2])
def test_c39_c40_a_failure_is_told_and_never_looks_like_an_empty_answer(app, engine, url, body, at):
    engine.fail_at = at
    response = post(app, url, body | {"stream": True})
    if at == 0:
        assert response.status_code == 500
        assert_openai_error(response)
    else:
        assert events(response)[-1]["error"]["code"] == "request_failed"
        assert "[DONE]" not in response.text


@BOTH
def test_c44_an_interval_loses_no_token(app, url, body):
    def text(chunks):
        return "".join(
            choice.get("text", choice.get("delta", {}).get("content", "")) for chunk in chunks[:-1] for choice in chunk["choices"]
        )

    assert len({text(streamed(app, url, body, max_tokens=7, stream_interval=interval)) for interval in (1, 2, 3, 4, 100)}) == 1


@BOTH
def test_c45_usage_comes_once_without_choices_before_done_and_only_when_asked_for(app, url, body):
    *chunks, last, _ = streamed(app, url, body, stream_options={"include_usage": True})
    assert last["choices"] == [] and last["usage"]["total_tokens"] > 0
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)
    assert not any("usage" in chunk for chunk in streamed(app, url, body)[:-1])


def test_c46_max_completion_tokens_is_an_upper_bound(app, engine):
    assert post(app, CHAT_URL, {**CHAT, "max_tokens": None, "max_completion_tokens": 65_536}).status_code == 200
    assert engine.requests[-1][1].max_tokens == MAX_MODEL_LEN - len(engine.requests[-1][0])


@pytest.mark.parametrize(
    ("url", "body", "numbers"),
    [
        (CHAT_URL, CHAT | {"messages": [{"role": "user", "content": "a" * 600}]}, ["617", "512"]),
        (TEXT_URL, COMPLETION | {"prompt": "a" * 600}, ["600", "512"]),
        (TEXT_URL, COMPLETION | {"prompt": [1] * 512}, ["512"]),
        (TEXT_URL, COMPLETION | {"prompt": "a" * 500, "max_tokens": 13}, ["500", "13", "512"]),
    ],
    ids=["chat", "text", "ids", "together"],
)
def test_c47_c51_what_is_too_long_has_a_code_and_the_numbers(app, url, body, numbers):
    response = post(app, url, body)
    error = assert_openai_error(response)
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert all(number in error["message"] for number in numbers), error["message"]
    assert "-" not in error["message"].replace("--max", "")


def test_c48_an_answer_cut_at_the_default_says_length(app, engine):
    engine.says = ["a"] * 40
    choice = post(app, TEXT_URL, {"model": "tiny", "prompt": "x"}).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("a" * 16, "length")


@BOTH
def test_c49_a_prompt_is_never_cut_without_being_asked(app, engine, url, body):
    long = "x" * 1000
    asked = body | ({"prompt": long} if url == TEXT_URL else {"messages": [{"role": "user", "content": long}]})
    assert post(app, url, asked).status_code == 400
    answer = post(app, url, asked | {"truncate_prompt_tokens": 100}).json()
    assert answer["usage"]["prompt_tokens"] == 100 == len(engine.requests[-1][0])


def test_c55_logprobs_have_the_shape_of_their_endpoint_and_zero_is_not_none(app):
    chat = post(app, CHAT_URL, CHAT | {"logprobs": True}).json()["choices"][0]["logprobs"]
    assert chat["content"][0]["top_logprobs"] == [] and chat["content"][0]["logprob"] == -0.25
    text = post(app, TEXT_URL, COMPLETION | {"logprobs": 0}).json()["choices"][0]["logprobs"]
    assert text["token_logprobs"] == [-0.25] * 4
    assert set(text) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}


@BOTH
@pytest.mark.parametrize("field", ["prompt_logprobs", "n", "top_k", "min_tokens", "truncate_prompt_tokens", "stream_interval"])
def test_c57_every_size_has_a_cap_that_is_named(app, url, body, field):
    error = assert_openai_error(post(app, url, body | {field: 2**40}))
    assert (error["code"], error["param"]) == ("integer_above_max_value", field)


@BOTH
@pytest.mark.parametrize("n", [1, 3])
def test_c61_n_is_honoured(app, url, body, n):
    assert len(post(app, url, body | {"n": n}).json()["choices"]) == n


def test_c63_the_choices_of_a_list_stand_in_its_order(app):
    choices = post(app, TEXT_URL, COMPLETION | {"prompt": ["a", "b"], "n": 2, "max_tokens": 1}).json()["choices"]
    assert [(choice["index"], choice["text"]) for choice in choices] == [(0, "a0"), (1, "a1"), (2, "b0"), (3, "b1")]


def test_c65_a_bad_message_is_named(app):
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "image_url"}]}]
    assert assert_openai_error(post(app, CHAT_URL, CHAT | {"messages": messages}))["param"] == "messages[1].content[0].type"


def test_c66_parts_of_both_apis_are_taken(app, engine):
    parts = [{"type": kind, "text": kind} for kind in ("text", "input_text", "output_text")]
    assert post(app, CHAT_URL, CHAT | {"messages": [{"role": "user", "content": parts}]}).status_code == 200
    assert b"input_text" in bytes(engine.requests[-1][0])


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("POST", "/v1/nothing"), ("GET", "/v1"), ("GET", "/favicon.ico")])
def test_c67_an_unknown_route_has_the_error_of_openai(app, method, path):
    response = call(app, method, path)
    assert (response.status_code, assert_openai_error(response)["code"]) == (404, "unknown_url")


def test_c71_cached_tokens_are_told(app):
    answer = post(app, TEXT_URL, COMPLETION | {"prompt": "x" * 40}).json()
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 32


def test_c88_an_aborted_request_is_counted(app, engine):
    engine.fail_at = 1
    post(app, TEXT_URL, COMPLETION)
    text = call(app, "GET", "/metrics").text
    assert 'request_success_total{engine="0",finished_reason="error",model_name="tiny"} 1.0' in text


KEYS = json.dumps({f"k{i}": 1 for i in range(500_000)}).encode()
ARRAYS = b"[" + b",".join([b"[]"] * 2_000_000) + b"]"


@pytest.mark.parametrize("content", [KEYS, ARRAYS], ids=["keys", "arrays"])
def test_very_many_values_are_refused_before_they_are_made(content):
    seconds = []
    for _ in range(3):
        began = time.process_time()
        with pytest.raises(InvalidRequest):
            parse_json_object(content)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.1
