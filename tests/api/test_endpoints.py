"""The endpoints beside answering: models, tokens, status, and the description of them all."""

import json

import pytest

from octavo.errors import EngineDead
from octavo.messages.wire import Phase
from octavo.server.routes import ENDPOINTS
from tests.api.calls import CHAT, COMPLETION, assert_openai_error, call, make_app, post
from tests.api.fake_encoder import FakeEncoder
from tests.api.fake_engine import MAX_MODEL_LEN, FakeEngine


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def app(engine):
    return make_app(engine, enable_admin_endpoints=True, enable_tokenizer_info_endpoint=True)


def test_a_model_says_how_long_it_is_what_may_be_done_with_it_and_whether_it_serves(app, engine):
    card = call(app, "GET", "/v1/models").json()["data"][1]
    assert (card["id"], card["root"], card["max_model_len"]) == ("tiny-alias", "tiny", MAX_MODEL_LEN)
    assert card["permission"][0]["allow_sampling"] is True
    assert card["status"] == {"value": "loaded"}
    engine.is_alive = False
    assert call(app, "GET", "/v1/models/tiny").json()["status"] == {"value": "loading"}


def test_a_text_is_tokenised_and_comes_back(app):
    answer = post(app, "/tokenize", {"prompt": "hi", "return_token_strs": True}).json()
    assert answer == {"count": 2, "max_model_len": MAX_MODEL_LEN, "tokens": [104, 105], "token_strs": ["h", "i"]}
    assert post(app, "/detokenize", {"tokens": [104, 105]}).json() == {"prompt": "hi"}


def test_a_conversation_is_tokenised_as_a_chat_would_be(app, engine):
    post(app, "/v1/chat/completions", CHAT)
    answer = post(app, "/tokenize", {"messages": CHAT["messages"], "model": "tiny"}).json()
    assert answer["tokens"] == engine.requests[-1][0]
    assert answer["token_strs"] is None


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": 1}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "model": "gpt"}, 404, "model"),
        ("/tokenize", {"messages": []}, 400, "messages"),
        ("/tokenize", {"prompt": "a", "promt": "b"}, 400, "promt"),
        ("/detokenize", {"tokens": [256]}, 400, "tokens"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": "a"}, 400, "tokens"),
        ("/detokenize", {"tokens": [1.5]}, 400, "tokens[0]"),
        ("/invocations", {}, 400, "messages"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(app, path, body, status, param):
    response = post(app, path, body)
    assert (response.status_code, assert_openai_error(response)["param"]) == (status, param)


def test_an_empty_text_has_no_tokens(app):
    assert post(app, "/tokenize", {"prompt": ""}).json()["count"] == 0
    assert post(app, "/detokenize", {"tokens": []}).json() == {"prompt": ""}


def test_the_tokenizer_tells_what_harnesses_ask_for(app):
    info = call(app, "GET", "/tokenizer_info").json()
    assert (info["eos_token"], info["bos_token"], info["vocab_size"]) == ("\x03", None, 256)
    assert info["chat_template"]


@pytest.mark.parametrize(("body", "kind"), [(CHAT, "chat.completion"), (COMPLETION, "text_completion")])
def test_an_invocation_is_what_its_body_is(app, body, kind):
    assert post(app, "/invocations", body).json()["object"] == kind


def test_the_load_is_what_is_unfinished(app, engine):
    engine.num_unfinished = 3
    assert call(app, "GET", "/load").json() == {"server_load": 3}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_ping_is_answered_like_health(app, engine, method):
    assert call(app, method, "/ping").status_code == 200
    engine.last_error = "gone"
    assert call(app, method, "/ping").status_code == EngineDead.status


def test_the_prefix_cache_is_forgotten_on_request(app, engine):
    assert call(app, "POST", "/reset_prefix_cache").json() == {"success": True}
    assert engine.controls == ["reset_prefix_cache"]
    engine.num_unfinished = 1
    assert call(app, "POST", "/reset_prefix_cache").json() == {"success": False}


def test_settings_are_told_without_the_keys():
    app = make_app(api_key=("sk-secret",), enable_admin_endpoints=True)
    response = call(app, "GET", "/server_info", headers={"authorization": "Bearer sk-secret"})
    assert response.json()["server"]["num_api_keys"] == 1
    assert "sk-secret" not in response.text


@pytest.mark.parametrize("endpoint", [endpoint for endpoint in ENDPOINTS if endpoint.switch], ids=lambda endpoint: endpoint.path)
def test_what_is_off_is_not_there(endpoint):
    response = call(make_app(), endpoint.method, endpoint.path)
    assert (response.status_code, assert_openai_error(response)["code"]) == (404, "unknown_url")


def described_endpoints(app):
    paths = call(app, "GET", "/openapi.json").json()["paths"]
    return {(path.replace("{model}", "{model:path}"), method.upper()) for path, item in paths.items() for method in item}


def test_the_description_has_every_endpoint_of_a_model_that_generates_and_only_fields_that_are_honoured(app):
    assert described_endpoints(app) == {(each.path, each.method) for each in ENDPOINTS if each.task in (None, "generate")}
    described = call(app, "GET", "/openapi.json").json()
    schemas = described["components"]["schemas"]
    assert {"temperature", "tools", "bad_words"} <= set(schemas["ChatRequest"]["properties"])
    assert not {"audio", "guided_json", "suffix"} & set(schemas["ChatRequest"]["properties"])
    assert schemas["ChatRequest"]["additionalProperties"] is False
    assert all(reference.rsplit("/", 1)[1] in schemas for reference in references(described))


def references(value):
    if isinstance(value, dict):
        yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_a_server_describes_only_what_it_serves():
    assert "/server_info" not in call(make_app(), "GET", "/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    ("labels", "tasks"),
    [((), {"pool", "embed", "score"}), (("relevance",), {"pool", "classify", "score"}), (("bad", "good"), {"pool", "classify"})],
    ids=["vectors", "cross-encoder", "classes"],
)
def test_a_server_of_an_encoder_describes_what_that_encoder_does(labels, tasks):
    app = make_app(FakeEncoder(labels))
    described = described_endpoints(app)
    switched_off = {(each.path, each.method) for each in ENDPOINTS if each.switch}
    assert described == {(each.path, each.method) for each in ENDPOINTS if each.task in (None, *tasks)} - switched_off
    page = call(app, "GET", "/docs").text
    assert ("/v1/embeddings" in page, "/v1/chat/completions" in page) == ("embed" in tasks, False)


SMALL_BODIES = {
    "ChatRequest": CHAT,
    "CompletionRequest": COMPLETION,
    "ResponsesRequest": {"model": "tiny", "input": "a"},
    "MessagesRequest": CHAT | {"max_tokens": 3},
    "CountTokensRequest": {"model": "tiny", "messages": CHAT["messages"]},
    "EmbeddingRequest": {"model": "tiny", "input": "a"},
    "PoolingRequest": {"model": "tiny", "input": "a"},
    "ClassifyRequest": {"model": "tiny", "input": "a"},
    "RerankRequest": {"model": "tiny", "query": "a", "documents": ["b"]},
    "ScoreRequest": {"model": "tiny", "text_1": "a", "text_2": "b"},
}


@pytest.mark.parametrize("labels", [None, (), ("relevance",), ("bad", "good")], ids=["text", "vectors", "cross-encoder", "classes"])
def test_what_is_not_described_is_refused_as_no_task_of_the_model_and_what_is_described_is_not(labels):
    app = make_app(FakeEngine() if labels is None else FakeEncoder(labels))
    described = described_endpoints(app)
    for each in ENDPOINTS:
        if each.task and each.bodies:
            response = post(app, each.path, SMALL_BODIES[each.bodies[0].__name__])
            is_described = (each.path, each.method) in described
            assert response.status_code == (200 if is_described else 400), (each.path, response.text)
            if not is_described:  # Anthropic's errors have no code
                assert response.json()["error"].get("code", "unsupported_task") == "unsupported_task"


def test_the_page_needs_nothing_from_elsewhere(app):
    page = call(app, "GET", "/docs")
    assert page.headers["content-type"].startswith("text/html")
    for sign in ("http://", "https://", "<script", "src=", "@import"):
        assert sign not in page.text
    assert "/v1/completions" in page.text and "top_n_sigma" in page.text


def test_no_description_holds_a_place_of_this_machine(app):
    assert "/tmp/" not in json.dumps(call(app, "GET", "/openapi.json").json())


def test_a_refused_method_is_told_all_that_the_path_takes(app):
    refused = call(app, "PUT", "/v1/responses/resp_1")
    assert refused.status_code == 405
    assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD", "DELETE"}


def test_a_key_is_described_only_where_one_is_needed(app):
    assert "security" not in json.dumps(call(app, "GET", "/openapi.json").json())
    locked = make_app(api_key=("sk-1",))
    described = call(locked, "GET", "/openapi.json", headers={"authorization": "Bearer sk-1"}).json()
    assert described["paths"]["/v1/models"]["get"]["security"] == [{"key": []}]
    assert "security" not in described["paths"]["/health"]["get"]


def test_no_described_bound_is_beyond_what_a_body_holds():
    described = call(make_app(max_body_bytes=4096), "GET", "/openapi.json").json()
    prompt = described["components"]["schemas"]["CompletionRequest"]["properties"]["prompt"]
    assert prompt["anyOf"][0]["maxLength"] == 4096
    assert prompt["anyOf"][1]["maxItems"] == 2048


def test_every_place_in_a_path_and_every_answer_is_described(app):
    for path, item in call(app, "GET", "/openapi.json").json()["paths"].items():
        for operation in item.values():
            assert [f"{{{place['name']}}}" in path for place in operation.get("parameters", ())] == [True] * path.count("{")
            assert {"200", "4XX", "5XX"} == set(operation["responses"])


def test_the_description_names_the_models_that_are_served(app):
    schemas = call(app, "GET", "/openapi.json").json()["components"]["schemas"]
    assert schemas["ChatRequest"]["properties"]["model"] == {"enum": ["tiny", "tiny-alias"]}
    assert schemas["DetokenizeRequest"]["properties"]["model"] == {"enum": ["tiny", "tiny-alias", None]}


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/models", "/v1/models?"), ("/v1/v1/chat/completions", "/v1/chat/completions?"), ("/v1/chat/completion", "/v1/chat/completions?"),
        ("/v1/completions/", "/v1/completions?"), ("/", "see /docs"), ("/v1/images/generations", "see /docs"),
    ],
)  # fmt: skip
def test_an_unknown_url_names_the_nearest_one(app, path, near):
    error = assert_openai_error(call(app, "GET", path))
    assert error["code"] == "unknown_url" and near in error["message"]


def test_the_phases_of_the_start_are_told():
    app = make_app(enable_admin_endpoints=True)
    app.state.server.phases = [Phase("imports", 1.0, 1.5)]
    info = call(app, "GET", "/server_info").json()
    assert info["phases"] == [{"name": "imports", "begin_s": 1.0, "end_s": 1.5}]
    assert info["engine"]["phases"] == []
