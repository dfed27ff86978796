"""The endpoints for vectors and scores: shapes, order, every field honoured or refused, failures and disconnects."""

import asyncio
import base64

import numpy as np
import openai
import pytest

from octavo.config.server_schema import ServerConfig
from octavo.server.app import create_app
from tests.api.asgi_client import Client, until
from tests.api.calls import assert_openai_error, call, make_app, post
from tests.api.fake_encoder import FakeEncoder
from tests.api.fake_engine import FakeEngine
from tests.api.live import live

EMBEDDINGS = {"model": "tiny", "input": "hello"}


@pytest.fixture
def engine():
    return FakeEncoder()


@pytest.fixture
def app(engine):
    return make_app(engine)


def vector(text):
    return [len(text) + 1.0, float(text.encode()[-1]), 1.0]


def test_each_input_gets_its_vector_in_order(app):
    answer = post(app, "/v1/embeddings", EMBEDDINGS | {"input": ["a", "hello", "zz"]}).json()
    assert answer["object"] == "list"
    assert answer["id"].startswith("embd-")
    assert [(item["index"], item["object"], item["embedding"]) for item in answer["data"]] == [
        (index, "embedding", vector(text)) for index, text in enumerate(("a", "hello", "zz"))
    ]
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == 2 + 6 + 3


@pytest.mark.parametrize("given", ["hi", ["hi"], [104, 105, 0], [[104, 105, 0]]])
def test_text_and_token_ids_are_taken_alone_and_in_lists(app, given):
    answer = post(app, "/v1/embeddings", EMBEDDINGS | {"input": given}).json()
    assert [item["embedding"] for item in answer["data"]] == [vector("hi")]


def test_base64_holds_the_float32_values(app):
    answer = post(app, "/v1/embeddings", EMBEDDINGS | {"encoding_format": "base64"}).json()
    assert np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4").tolist() == vector("hello")


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"input": []}, "invalid_value", "input"),
        ({"input": [[]]}, "invalid_value", "input"),
        ({"input": 5}, "invalid_type", "input"),
        ({"input": ["a", [1]]}, "invalid_type", "input"),
        ({"input": [1.5]}, "invalid_type", "input"),
        ({"input": [-1]}, "invalid_value", "input"),
        ({"input": [256]}, "invalid_value", "input"),
        ({"input": ["a"] * 2049}, "array_above_max_length", "input"),
        ({"input": "x" * 64}, "context_length_exceeded", "input"),
        ({"dimensions": 2}, "unsupported_value", "dimensions"),
        ({"dimensions": 0}, "integer_below_min_value", "dimensions"),
        ({"encoding_format": "int8"}, "invalid_value", "encoding_format"),
        ({"truncate_prompt_tokens": 0}, "invalid_value", "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 65}, "invalid_value", "truncate_prompt_tokens"),
        ({"messages": []}, "unsupported_parameter", "messages"),
        ({"add_special_tokens": False}, "unsupported_parameter", "add_special_tokens"),
        ({"speed": 1}, "unknown_parameter", "speed"),
        ({"model": "other"}, "model_not_found", "model"),
    ],
)
def test_what_is_wrong_is_named(app, change, code, param):
    response = post(app, "/v1/embeddings", EMBEDDINGS | change)
    error = assert_openai_error(response)
    assert (response.status_code, error["code"], error["param"]) == (404 if code == "model_not_found" else 400, code, param)


def test_fields_reach_the_engine(app, engine):
    fields = {"input": "x" * 80, "truncate_prompt_tokens": 3, "use_activation": False, "priority": 4, "dimensions": 3, "user": "me"}
    assert post(app, "/v1/embeddings", EMBEDDINGS | fields).status_code == 200
    assert engine.asked == [([120, 120, 0], "embed", False, 4)]
    post(app, "/v1/embeddings", EMBEDDINGS | {"input": "x" * 80, "truncate_prompt_tokens": -1})
    assert len(engine.asked[1][0]) == 64


def test_pooling_gives_what_the_task_says(app):
    tokens = post(app, "/pooling", EMBEDDINGS | {"input": "hi"}).json()
    assert tokens["data"] == [{"index": 0, "object": "pooling", "data": [[3.0, 104.0, 1.0], [3.0, 105.0, 1.0], [3.0, 0.0, 1.0]]}]
    one = post(app, "/pooling", EMBEDDINGS | {"input": "hi", "task": "embed"}).json()
    assert one["data"][0]["data"] == vector("hi")
    assert post(app, "/pooling", EMBEDDINGS | {"task": "token_classify"}).status_code == 400


def test_classify_names_the_likeliest_label():
    app = make_app(FakeEncoder(labels=("long", "short")))
    answer = post(app, "/classify", {"model": "tiny", "input": ["hi", "x" * 40]}).json()
    assert [(item["label"], item["num_classes"]) for item in answer["data"]] == [("short", 2), ("long", 2)]
    assert answer["data"][1]["probs"] == [41 / 64, 0.25]


def test_rerank_sorts_the_documents(app):
    body = {"model": "tiny", "query": "b", "documents": ["aaaaaaaa", "b", {"text": "bb"}]}
    answer = post(app, "/v1/rerank", body).json()
    assert [result["index"] for result in answer["results"]] == [1, 2, 0]
    assert answer["results"][0] == {"index": 1, "relevance_score": pytest.approx(1.0), "document": {"text": "b"}}
    top = post(app, "/rerank", body | {"top_n": 1, "return_documents": False}).json()
    assert top["results"] == [{"index": 1, "relevance_score": pytest.approx(1.0)}]
    assert len(post(app, "/v2/rerank", body | {"top_n": 0}).json()["results"]) == 3


def test_a_cross_encoder_reads_two_texts_as_one():
    engine = FakeEncoder(labels=("score",))
    answer = post(make_app(engine), "/rerank", {"model": "tiny", "query": "ab", "documents": ["c", "cdef"]}).json()
    assert [(result["index"], result["relevance_score"]) for result in answer["results"]] == [(1, 8 / 64), (0, 5 / 64)]
    assert engine.asked[0][:2] == ([97, 98, 0, 99, 0], "classify")


@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")])
def test_score_takes_its_texts_under_every_pair_of_names(app, names):
    answer = post(app, "/score", {"model": "tiny", names[0]: "b", names[1]: ["b", "aaaaaa"]}).json()
    assert [item["index"] for item in answer["data"]] == [0, 1]
    assert answer["data"][0]["score"] == pytest.approx(1.0)
    assert answer["data"][1]["score"] < 1


@pytest.mark.parametrize(
    "texts", [{}, {"text_1": "a"}, {"text_1": "a", "documents": "b"}, {"text_1": ["a", "b"], "text_2": ["c"]}, {"text_1": []}]
)
def test_score_refuses_texts_that_make_no_pairs(app, texts):
    assert_openai_error(response := post(app, "/v1/score", {"model": "tiny"} | texts))
    assert response.status_code == 400


def test_a_model_is_asked_only_for_what_it_does(app):
    for path in ("/classify", "/pooling"):
        body = EMBEDDINGS | ({"task": "classify"} if path == "/pooling" else {})
        assert assert_openai_error(post(app, path, body))["code"] == "unsupported_task"
    classes = make_app(FakeEncoder(labels=("a", "b")))
    assert assert_openai_error(post(classes, "/v1/embeddings", EMBEDDINGS))["code"] == "unsupported_task"
    assert assert_openai_error(post(classes, "/score", {"model": "tiny", "text_1": "a", "text_2": "b"}))["code"] == "unsupported_task"


@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling", "/classify", "/score", "/rerank"])
def test_a_model_that_generates_says_so(path):
    fields = {"/score": {"text_1": "a", "text_2": "b"}, "/rerank": {"query": "a", "documents": ["b"]}}.get(path, {"input": "a"})
    error = assert_openai_error(post(make_app(FakeEngine()), path, {"model": "tiny"} | fields))
    assert error["code"] == "unsupported_task"
    assert "generates text" in error["message"]


def test_one_text_that_fails_fails_the_request_and_ends_the_others(app, engine):
    response = post(app, "/v1/embeddings", EMBEDDINGS | {"input": ["fine", "fail!", "fine too"]})
    assert response.status_code == 500
    assert assert_openai_error(response)["code"] == "request_failed"
    assert engine.num_unfinished == 0


def test_texts_are_counted_in_the_metrics(app):
    post(app, "/v1/embeddings", EMBEDDINGS | {"input": ["a", "bc"]})
    lines = call(app, "GET", "/metrics").text.splitlines()
    assert 'vllm:prompt_tokens_total{engine="0",model_name="tiny"} 5.0' in lines
    assert 'vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"} 2.0' in lines


def test_a_client_that_goes_away_ends_its_texts():
    async def scene():
        engine = FakeEncoder()
        engine.running.clear()
        client = Client("/v1/embeddings", EMBEDDINGS | {"input": ["a", "b"]})
        answering = asyncio.create_task(create_app(engine, ServerConfig())(client.scope, client.receive, client.send))
        await until(lambda: len(engine.asked) == 2)
        client.left.set()
        await answering
        assert sorted(engine.aborted) == [b"a\x00", b"b\x00"]
        assert engine.num_unfinished == 0

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("strict", "encoding_format"),
    [(True, "float"), (False, openai.NOT_GIVEN)],  # left alone, the client asks for base64, which its own strict mode refuses
)
def test_the_official_client_gets_its_vectors(strict, encoding_format):
    with (
        live(make_app(FakeEncoder())) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, _strict_response_validation=strict) as client,
    ):
        answer = client.embeddings.create(model="tiny", input=["hi", "hello"], encoding_format=encoding_format)
        assert [item.embedding for item in answer.data] == [vector("hi"), vector("hello")]
        assert answer.usage.total_tokens == 9
        with pytest.raises(openai.BadRequestError, match="dimensions"):
            client.embeddings.create(model="tiny", input="hi", dimensions=2)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}),
        ("/v1/responses", {"input": "a"}),
        ("/tokenize", {"messages": [{"role": "user", "content": "a"}]}),
    ],
)
def test_a_model_that_generates_no_text_says_so(app, path, fields):
    response = post(app, path, {"model": "tiny"} | fields)
    assert response.status_code == 400
    assert "generates no text" in response.json()["error"]["message"]


def test_an_encoders_tokenizer_tells_of_itself_without_a_template():
    answer = call(make_app(FakeEncoder(), enable_tokenizer_info_endpoint=True), "GET", "/tokenizer_info").json()
    assert answer["chat_template"] is None
