"""The conversation of `octavo chat`, and the client that speaks to a server."""

import pytest
from tests.api.calls import make_app
from tests.api.fake_engine import FakeEngine
from tests.api.live import live

from octavo.cli.answering import Answered, Options
from octavo.cli.chat import HELP, Conversation, obey
from octavo.cli.remote import RemoteAnswerer
from octavo.errors import EngineError, RequestError


class Parrot:
    model_name = "parrot"

    def __init__(self):
        self.asked = []

    def chat(self, messages, options, write):
        if messages[-1]["content"] == "stop":
            write("half an ans")
            raise KeyboardInterrupt
        self.asked.append(messages)
        write(messages[-1]["content"])
        return Answered(messages[-1]["content"], 3, 5, 0.5, 1.5)


@pytest.fixture
def parrot():
    return Parrot()


@pytest.fixture
def talk(parrot):
    return Conversation(parrot, Options(), "Be brief.", lambda text: None)


def test_what_was_said_is_remembered(talk, parrot):
    talk.say("a")
    talk.say("b")
    assert [message["content"] for message in parrot.asked[-1]] == ["Be brief.", "a", "a", "b"]
    assert [message["role"] for message in talk.messages] == ["system", "user", "assistant", "user", "assistant"]


def test_an_answer_that_was_stopped_leaves_no_trace(talk):
    with pytest.raises(KeyboardInterrupt):
        talk.say("stop")
    assert [message["role"] for message in talk.messages] == ["system"]


def test_commands_do_what_they_say(talk):
    assert obey(talk, "/stats") == "There was no answer yet."
    talk.say("a")
    assert "5 output tokens" in obey(talk, "/stats")
    assert "4.0 tok/s" in obey(talk, "/stats")
    obey(talk, "/reset")
    assert talk.messages == [{"role": "system", "content": "Be brief."}]
    obey(talk, "/system Rhyme.")
    assert talk.messages == [{"role": "system", "content": "Rhyme."}]
    obey(talk, "/system")
    assert talk.messages == []
    assert obey(talk, "/help") == HELP
    assert "did you mean /reset?" in obey(talk, "/rest")
    assert obey(talk, "/quit") is None


@pytest.fixture(scope="module")
def engine():
    return FakeEngine()


@pytest.fixture(scope="module")
def server(engine):
    with live(make_app(engine, api_key=("sk-test",))) as running:
        yield running


@pytest.fixture
def remote(server, monkeypatch):
    monkeypatch.setenv("OCTAVO_API_KEY", "sk-test")
    return RemoteAnswerer(f"{server.url}/v1/", None)


def test_a_server_is_asked_for_its_first_model(remote):
    assert remote.model_name == "tiny"


def test_a_servers_address_may_end_with_v1_or_not(remote, server):
    assert RemoteAnswerer(server.url, None).model_name == remote.model_name == "tiny"


def test_a_server_answers_as_it_comes(remote):
    pieces = []
    answer = remote.chat([{"role": "user", "content": "hi"}], Options(max_tokens=3), pieces.append)
    assert pieces == [":0", " one", " two"]
    assert (answer.text, answer.num_output_tokens) == (":0 one two", 3)
    assert remote.complete("hi", Options(max_tokens=2), pieces.append).text == "i0 one"


def test_what_a_server_refuses_is_told(remote):
    with pytest.raises(RequestError, match="temperature must be at most"):
        remote.chat([{"role": "user", "content": "hi"}], Options(temperature=9.0), lambda text: None)


def test_a_stream_that_breaks_off_is_an_error(remote, engine):
    engine.fail_at = 1
    try:
        with pytest.raises(EngineError, match="NaN"):
            remote.complete("hi", Options(), lambda text: None)
    finally:
        engine.fail_at = None


def test_where_no_server_is_the_error_says_so(monkeypatch):
    with pytest.raises(RequestError, match="no server answers"):
        RemoteAnswerer("http://127.0.0.1:9/v1", None)
    with pytest.raises(RequestError, match="no http URL"):
        RemoteAnswerer("file:///etc/passwd", None)
