"""Fields of chat and text completions: honoured, or refused by name; nothing is dropped in silence."""

import pytest

from octavo.server.openai.schemas import ChatRequest, CompletionRequest
from tests.api.calls import CHAT, COMPLETION, assert_openai_error, events, make_app, post
from tests.api.fake_engine import FakeEngine

CHAT_URL, TEXT_URL = "/v1/chat/completions", "/v1/completions"


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def app(engine):
    return make_app(engine)


SAMPLING = {
    "bad_words": ["no", "never"], "allowed_token_ids": [1, 2, 3], "typical_p": 0.9, "top_n_sigma": 1.5, "xtc_probability": 0.5,
    "xtc_threshold": 0.2, "dry_multiplier": 0.8, "dry_base": 1.5, "dry_allowed_length": 3, "dry_penalty_last_n": 64,
    "dry_sequence_breakers": ["\n"], "prompt_logprobs": 2, "ignore_eos": True, "include_stop_str_in_output": True,
}  # fmt: skip


@pytest.mark.parametrize(("url", "body"), [(CHAT_URL, CHAT), (TEXT_URL, COMPLETION)], ids=["chat", "text"])
def test_every_way_of_sampling_reaches_the_engine(app, engine, url, body):
    assert post(app, url, body | SAMPLING).status_code == 200
    params = engine.requests[-1][1]
    for name, value in SAMPLING.items():
        assert getattr(params, name) == (tuple(value) if isinstance(value, list) else value), name


NEUTRAL = [
    (url, body, name, value)
    for url, body, schema in ((CHAT_URL, CHAT, ChatRequest), (TEXT_URL, COMPLETION, CompletionRequest))
    for name, refused in schema.refused.items()
    for value in (None, *refused.neutral)
]


@pytest.mark.parametrize(("url", "body", "name", "value"), NEUTRAL, ids=lambda value: str(value)[-24:])
def test_a_value_that_asks_for_nothing_passes(app, url, body, name, value):
    assert post(app, url, body | {name: value}).status_code == 200


@pytest.mark.parametrize(
    ("url", "body", "name"),
    [(CHAT_URL, CHAT, name) for name in ChatRequest.refused] + [(TEXT_URL, COMPLETION, name) for name in CompletionRequest.refused],
)
def test_c62_a_value_that_would_change_the_answer_is_refused_by_name(app, url, body, name):
    error = assert_openai_error(post(app, url, body | {name: "something else"}))
    assert (error["code"], error["param"]) == ("unsupported_parameter", name)
    assert name in error["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "u"}, {"metadata": {"a": "b"}}, {"prompt_cache_key": "k"}, {"safety_identifier": "s"}, {"service_tier": "default"},
        {"stream": True, "stream_options": {"include_obfuscation": False}}, {"store": False}, {"verbosity": "medium"},
    ],
    ids=str,
)  # fmt: skip
def test_hints_that_cannot_change_an_answer_pass(app, fields):
    assert post(app, CHAT_URL, CHAT | fields).status_code == 200


def test_an_obfuscated_stream_is_refused(app):
    error = assert_openai_error(post(app, CHAT_URL, CHAT | {"stream": True, "stream_options": {"include_obfuscation": True}}))
    assert error["param"] == "stream_options.include_obfuscation"


def test_an_unknown_field_is_refused_with_the_nearest_known_one(app):
    error = assert_openai_error(post(app, CHAT_URL, CHAT | {"temprature": 1}))
    assert (error["code"], error["param"]) == ("unknown_parameter", "temprature")
    assert "did you mean temperature?" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_unknown_fields_may_be_ignored_and_are_then_named_in_a_header(stream):
    app = make_app(ignore_unknown_fields=True)
    response = post(app, CHAT_URL, CHAT | {"foo": 1, "b\nad": 2, "top_kk": 3, "stream": stream})
    assert response.status_code == 200
    assert response.headers["x-ignored-fields"] == "foo, top_kk, 1 more"
    assert "x-ignored-fields" not in post(app, CHAT_URL, CHAT).headers
    assert post(app, CHAT_URL, CHAT | {"audio": {}}).status_code == 400, "a known field that is not honoured is still refused"


def test_a_salt_is_added_to_the_tenants_and_never_replaces_it(engine):
    app = make_app(engine, api_key=("sk-a", "sk-b"))
    salts = {}
    for key in ("sk-a", "sk-b"):
        for salt in (None, "mine"):
            assert post(app, TEXT_URL, COMPLETION | {"cache_salt": salt}, authorization=f"Bearer {key}").status_code == 200
            salts[key, salt] = engine.requests[-1][3]
    assert len(set(salts.values())) == 4
    assert all(salts[key, "mine"].startswith(salts[key, None]) for key in ("sk-a", "sk-b"))


@pytest.mark.parametrize("salt", ["", "a@b", "a/b", "a\\b", "a\0b", "x" * 129, 5])
def test_a_salt_has_its_rules(app, salt):
    assert assert_openai_error(post(app, TEXT_URL, COMPLETION | {"cache_salt": salt}))["param"] == "cache_salt"


def test_a_request_may_have_a_name_of_its_own(app):
    response = post(app, CHAT_URL, CHAT | {"request_id": "job-7"})
    assert response.json()["id"] == "chatcmpl-job-7"
    assert response.headers["x-request-id"] != "job-7"
    assert post(app, CHAT_URL, CHAT | {"request_id": "a\nb"}).status_code == 400


def test_c53_a_prefilled_answer_is_continued_as_it_is_and_given_back_with_echo(app, engine):
    messages = [*CHAT["messages"], {"role": "assistant", "content": "Well \n"}]
    body = CHAT | {"messages": messages, "continue_final_message": True, "echo": True}
    assert post(app, CHAT_URL, body).json()["choices"][0]["message"]["content"] == "Well \n\n0 one two three"
    assert bytes(engine.requests[-1][0]) == b"user: hi\nassistant: Well \n"
    *chunks, _ = events(post(app, CHAT_URL, body | {"stream": True}))
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Well \n\n0 one two three"


def test_documents_go_to_the_template(app, engine):
    post(app, CHAT_URL, CHAT | {"documents": [{"title": "t", "text": "x"}]})
    assert bytes(engine.requests[-1][0]).startswith(b"document: {'title': 't', 'text': 'x'}")


def test_special_tokens_are_added_to_a_chat_only_when_asked_for(app, engine):
    post(app, CHAT_URL, CHAT | {"add_special_tokens": True})
    assert engine.requests[-1][0][0] == 2
    post(app, CHAT_URL, CHAT)
    assert engine.requests[-1][0][0] != 2


def test_a_chat_tells_of_its_prompt_what_is_asked_for(app, engine):
    asked = CHAT | {"return_token_ids": True, "prompt_logprobs": 1, "n": 2}
    answer = post(app, CHAT_URL, asked).json()
    assert answer["prompt_token_ids"] == engine.requests[-1][0]
    assert len(answer["prompt_logprobs"]) == len(answer["prompt_token_ids"])
    assert answer["prompt_logprobs"][0] is None
    assert [choice["token_ids"] for choice in answer["choices"]] == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize(("url", "body"), [(CHAT_URL, CHAT), (TEXT_URL, COMPLETION)], ids=["chat", "text"])
def test_structured_output_without_its_library_is_refused_in_plain_words(app, url, body, monkeypatch):
    monkeypatch.setattr("octavo.grammar.library.is_installed", lambda: False)
    for field, value in (("response_format", {"type": "json_object"}), ("structured_outputs", {"json": {}})):
        response = post(app, url, body | {field: value})
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["param"] == field and error["code"] == "unsupported_value"
        assert "pip install 'octavo[grammar]'" in error["message"]
    assert post(app, url, body | {"response_format": {"type": "text"}}).status_code == 200
    assert "structured_outputs" in post(app, url, body | {"guided_json": {}}).json()["error"]["message"]
