import pytest

from tests.api.calls import COMPLETION, assert_openai_error, call, make_app, post
from tests.api.fake_engine import FakeEngine


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def app(engine):
    return make_app(engine, enable_admin_endpoints=True)


@pytest.mark.parametrize("query, verb", [
    ("", ("pause", "abort", True)),
    ("?mode=wait&clear_cache=false", ("pause", "wait", False)),
    ("?mode=keep&clear_cache=True", ("pause", "keep", True)),
])  # fmt: skip
def test_pause_and_resume(app, engine, query, verb):
    assert call(app, "POST", f"/pause{query}").json() == {"status": "paused"}
    assert engine.controls == [verb]
    assert call(app, "GET", "/is_paused").json() == {"is_paused": True}
    assert call(app, "POST", "/resume").json() == {"status": "resumed"}
    assert call(app, "GET", "/is_paused").json() == {"is_paused": False}


@pytest.mark.parametrize("query, param", [("?mode=later", "mode"), ("?clear_cache=1", "clear_cache")])
def test_a_pause_of_another_kind_is_refused(app, engine, query, param):
    response = call(app, "POST", f"/pause{query}")
    assert (response.status_code, assert_openai_error(response)["param"]) == (400, param)
    assert not engine.is_paused


@pytest.mark.parametrize("method, path", [("POST", "/pause"), ("POST", "/resume"), ("GET", "/is_paused")])
def test_without_the_operators_word_there_is_no_such_path(engine, method, path):
    assert call(make_app(engine), method, path).status_code == 404


def test_a_request_that_a_pause_has_ended_is_told_so(app, engine):
    engine.abort_at = 0
    engine.is_paused = True
    response = post(app, "/v1/completions", COMPLETION)
    assert (response.status_code, assert_openai_error(response)["code"]) == (503, "engine_paused")
