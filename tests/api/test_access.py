"""Who may call what: every route, by every kind of key; hosts, origins, bodies and states of the server."""

import asyncio

import pytest

from octavo.config.schema import CacheConfig
from octavo.config.server_schema import ServerConfig
from octavo.errors import ConfigError
from octavo.kv.block_files import KVDirectory
from octavo.server.app import create_app
from octavo.server.auth import KeyRing, check_exposure
from octavo.server.plan.endpoints import PLAN_ENDPOINTS
from octavo.server.routes import ENDPOINTS, build_routes, served
from tests.api.asgi_client import Client, until
from tests.api.calls import CHAT, assert_openai_error, call, make_app, post
from tests.api.fake_encoder import FakeEncoder
from tests.api.fake_engine import FakeEngine

KEY = "sk-right-key"
INPUT = {"model": "tiny", "input": "hi"}
SCORE = {"model": "tiny", "text_1": "a", "text_2": "b"}
RERANK = {"model": "tiny", "query": "a", "documents": ["b"]}
ENCODER_BODIES = {
    **dict.fromkeys(("/v1/embeddings", "/pooling", "/classify"), INPUT),
    **dict.fromkeys(("/score", "/v1/score"), SCORE),
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), RERANK),
}
PROBES = {"/health", "/livez", "/readyz", "/ping"}
PAGE = {endpoint.path for endpoint in PLAN_ENDPOINTS if endpoint.path != "/ui/plan/api"}  # the same bytes on every server
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "tiny", "prompt": "hi"},
    "/invocations": CHAT,
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [104]},
    "/v1/responses": {"model": "tiny", "input": "hi"},
    "/v1/messages": CHAT,
    "/v1/messages/count_tokens": {"model": "tiny", "messages": CHAT["messages"]},
    "/ui/plan/api": {},
} | ENCODER_BODIES
ALL_ON = {endpoint.switch: True for endpoint in ENDPOINTS if endpoint.switch}

WRONG = {
    "none": {},
    "wrong": {"authorization": "Bearer sk-wrong-key"},
    "empty": {"authorization": "Bearer"},
    "two words": {"authorization": f"Bearer {KEY} {KEY}"},
    "basic": {"authorization": f"Basic {KEY}"},
    "not ascii": {"authorization": "Bearer schlüssel".encode()},
    "longer": {"authorization": f"Bearer {KEY}x"},
}


def ask(app, endpoint, headers):
    path = endpoint.path.replace("{model:path}", "tiny").replace("{response_id}", "resp_none")
    return call(app, endpoint.method, path, body=BODIES.get(path), headers=headers)


@pytest.fixture(scope="module")
def app():
    return make_app(api_key=(KEY, "sk-other-key"), **ALL_ON)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG.keys())
def test_without_a_right_key_only_probes_and_the_page_answer(app, endpoint, headers):
    response = ask(app, endpoint, headers)
    if endpoint.path in PROBES:
        assert (response.status_code, response.content) == (200, b"")
    elif endpoint.path in PAGE:
        assert response.status_code == 200
    else:
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        if endpoint.path.startswith("/v1/messages"):
            assert response.json()["error"]["type"] == "authentication_error"
        else:
            assert assert_openai_error(response)["code"] == "invalid_api_key"


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
@pytest.mark.parametrize("headers", [{"authorization": f"Bearer {KEY}"}, {"authorization": "bearer sk-other-key"}])
def test_with_a_right_key_every_route_answers(app, endpoint, headers):
    if endpoint.path in ENCODER_BODIES:
        app = make_app(FakeEncoder(labels=("score",) * (endpoint.path == "/classify")), api_key=(KEY, "sk-other-key"))
    assert ask(app, endpoint, headers).status_code == (404 if "{response_id}" in endpoint.path else 200)


def test_a_server_on_loopback_answers_to_further_names_that_it_was_told():
    app = make_app(allowed_hosts=("gateway.local",))
    assert call(app, "GET", "/v1/models", headers={"host": "gateway.local:8000"}).status_code == 200
    assert call(app, "GET", "/v1/models", headers={"host": "other.local"}).status_code == 421


def test_the_application_has_no_route_but_those_of_the_table():
    routes = build_routes(served(ServerConfig(**ALL_ON)))
    methods = {(route.path, method) for route in routes for method in route.methods if method != "HEAD"}
    assert methods == {(endpoint.path, endpoint.method) for endpoint in ENDPOINTS}
    assert len(routes) == len({endpoint.path for endpoint in ENDPOINTS})
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.access == "open"} == PROBES | PAGE


def test_a_key_in_the_url_is_no_key(app):
    assert post(app, f"/v1/chat/completions?api_key={KEY}", CHAT).status_code == 401


@pytest.mark.parametrize("path", ["//v1/models", "/v1/%2e%2e/health", "/V1/models", "/v1/models;x", "/health/"])
def test_paths_that_are_no_route_are_not_found_whatever_they_resemble(app, path):
    assert call(app, "GET", path).status_code in (401, 404)


def test_a_host_header_cannot_walk_around_the_key(app):
    assert call(app, "GET", "/v1/models", headers={"host": "localhost/health?"}).status_code in (401, 421)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000"])
def test_loopback_hosts_are_ours(host):
    assert call(make_app(), "GET", "/v1/models", headers={"host": host}).status_code == 200


def test_off_loopback_any_host_is_taken_and_the_key_is_needed():
    app = make_app(host="0.0.0.0", api_key=(KEY,))
    assert call(app, "GET", "/v1/models", headers={"host": "gpu.example", "authorization": f"Bearer {KEY}"}).status_code == 200


def test_the_same_origin_may_post_and_another_may_not():
    app = make_app()
    assert post(app, "/v1/chat/completions", CHAT, origin="http://localhost").status_code == 200
    assert post(app, "/v1/chat/completions", CHAT, origin="null").status_code == 403


def test_an_address_off_loopback_needs_keys_or_the_word():
    with pytest.raises(ConfigError, match="--insecure-no-auth"):
        check_exposure("0.0.0.0", 0, False)
    check_exposure("0.0.0.0", 1, False)
    check_exposure("0.0.0.0", 0, True)
    check_exposure("127.0.0.1", 0, False)


def test_tenants_have_salts_of_their_own_that_end_with_the_server():
    ring, again = KeyRing(("a", "b")), KeyRing(("a", "b"))
    salts = {ring.tenant_salt(["Bearer a"]), ring.tenant_salt(["Bearer b"]), again.tenant_salt(["Bearer a"])}
    assert len(salts) == 3
    assert ring.tenant_salt(["Bearer a"]) in salts
    assert KeyRing(()).tenant_salt([]) == ""


def test_salts_outlive_the_server_where_the_prefix_cache_does(tmp_path):
    directory = KVDirectory(tmp_path / "kv")
    directory.close()
    salts = []
    for _ in range(2):
        app = create_app(None, ServerConfig(api_key=("a", "b")))
        app.state.server.attach(FakeEngine(), CacheConfig(kv_offload_dir=str(tmp_path / "kv")))
        salts.append([app.state.server.keys.tenant_salt([f"Bearer {key}"]) for key in "ab"])
    assert salts[0] == salts[1]
    assert salts[0][0] != salts[0][1]


def test_the_callers_salt_reaches_the_engine():
    engine = FakeEngine()
    app = make_app(engine, api_key=("a", "b"))
    for key in ("a", "b", "a"):
        post(app, "/v1/chat/completions", CHAT, authorization=f"Bearer {key}")
    first, second, third = (request[3] for request in engine.requests)
    assert first == third != second


@pytest.mark.parametrize("key", ["two words", "", "k\u00e9y", "k\n"])
def test_a_key_that_no_client_could_send_or_everyone_would_is_refused_at_the_start(key):
    with pytest.raises(ConfigError, match="API key must be"):
        KeyRing(("good", key))


def test_while_the_model_loads_everything_but_livez_says_so():
    app = create_app(None, ServerConfig())
    assert call(app, "GET", "/livez").status_code == 200
    for method, path in (("GET", "/health"), ("GET", "/v1/models"), ("GET", "/metrics"), ("POST", "/v1/chat/completions")):
        response = call(app, method, path, body=CHAT if method == "POST" else None)
        assert (response.status_code, assert_openai_error(response)["code"]) == (503, "model_loading")
        assert response.headers["retry-after"] == "1"
    app.state.server.attach(FakeEngine())
    assert call(app, "GET", "/health").status_code == 200


def test_a_draining_server_takes_nothing_new():
    app = make_app()
    app.state.server.drain()
    response = post(app, "/v1/chat/completions", CHAT)
    assert (response.status_code, response.json()["error"]["code"], response.headers["connection"]) == (503, "server_draining", "close")


def test_too_many_unfinished_requests_are_told_to_come_back():
    engine = FakeEngine()
    engine.num_unfinished = 3
    response = post(make_app(engine, max_num_queued_reqs=3), "/v1/chat/completions", CHAT)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "server_overloaded")
    assert int(response.headers["retry-after"]) >= 1


def test_a_request_for_n_answers_counts_n():
    engine = FakeEngine()
    engine.num_unfinished = 1
    app = make_app(engine, max_num_queued_reqs=3)
    assert post(app, "/v1/chat/completions", CHAT | {"n": 3}).status_code == 503
    assert post(app, "/v1/chat/completions", CHAT | {"n": 2}).status_code == 200


def test_the_request_that_crosses_the_limit_of_waiting_tokens_is_still_taken():
    engine = FakeEngine()
    app = make_app(engine, max_num_queued_tokens=10)
    engine.num_queued_tokens = 9
    assert post(app, "/v1/chat/completions", CHAT).status_code == 200
    engine.num_queued_tokens = 10
    response = post(app, "/v1/chat/completions", CHAT)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "server_overloaded")
    assert "max_num_queued_tokens" in response.json()["error"]["message"]


@pytest.mark.parametrize(("header", "body", "priority"), [(None, 3, 3), ("-2", 3, -2), ("soon", 3, 3), (None, None, 0)])
def test_the_priority_header_wins_if_it_is_an_integer(header, body, priority):
    engine = FakeEngine()
    headers = {} if header is None else {"X-Vllm-Priority": header}
    assert post(make_app(engine), "/v1/chat/completions", CHAT | {"priority": body}, **headers).status_code == 200
    assert engine.priorities == [priority]


def test_a_burst_of_requests_is_counted_at_the_door():
    async def run():
        engine = FakeEngine()
        engine.running = asyncio.Event()
        app = make_app(engine, max_num_queued_reqs=2)
        clients = [Client("/v1/chat/completions", CHAT) for _ in range(6)]
        exchanges = [asyncio.create_task(app(client.scope, client.receive, client.send)) for client in clients]
        await until(lambda: sum(bool(client.sent) for client in clients) == 4)
        engine.running.set()
        await asyncio.gather(*exchanges)
        assert sorted(client.sent[0]["status"] for client in clients) == [200, 200, 503, 503, 503, 503]

    asyncio.run(run())


def test_a_dead_engine_is_503_and_a_restarting_one_is_not_healthy():
    engine = FakeEngine()
    app = make_app(engine)
    engine.is_alive = False
    assert call(app, "GET", "/health").status_code == 503
    engine.last_error = "it died"
    response = post(app, "/v1/chat/completions", CHAT)
    assert (response.status_code, assert_openai_error(response)["code"]) == (503, "engine_unavailable")


def test_what_nobody_foresaw_is_a_500_that_tells_nothing():
    engine = FakeEngine()
    engine.generate = None
    response = post(make_app(engine), "/v1/chat/completions", CHAT)
    assert response.status_code == 500
    assert assert_openai_error(response)["code"] == "internal_error"
