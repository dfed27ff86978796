"""A client that goes away takes its request with it, streamed or not; a slow engine keeps the connection alive."""

import asyncio

import pytest

from octavo.server import sse
from tests.api.asgi_client import Client, until
from tests.api.calls import CHAT, COMPLETION, make_app
from tests.api.fake_engine import FakeEngine


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", CHAT | {"stream": True}),
        ("/v1/completions", COMPLETION | {"prompt": ["a", "b"], "n": 2}),
        ("/v1/completions", COMPLETION | {"stream": True}),
    ],
)
def test_a_client_that_leaves_before_the_first_token_is_aborted(path, body):
    async def run():
        engine = FakeEngine()
        engine.running = asyncio.Event()
        client = Client(path, body)
        exchange = asyncio.create_task(make_app(engine)(client.scope, client.receive, client.send))
        await until(lambda: engine.num_unfinished > 0)
        client.left.set()
        await exchange
        assert engine.num_unfinished == 0
        assert engine.aborted
        assert client.sent == []

    asyncio.run(run())


def test_a_client_that_leaves_midway_is_aborted_and_counted():
    async def run():
        engine = FakeEngine()
        engine.running = asyncio.Event()
        engine.running.set()
        app = make_app(engine)
        client = Client("/v1/chat/completions", CHAT | {"stream": True})
        plain_send = client.send

        async def leave_after_three(message):
            await plain_send(message)
            if len(client.sent) == 3:
                client.left.set()
                engine.running.clear()

        await app(client.scope, client.receive, leave_after_three)
        assert engine.aborted
        assert engine.num_unfinished == 0
        assert "[DONE]" not in client.text
        assert 'finished_reason="abort",model_name="tiny"} 1.0' in app.state.server.render_metrics().decode()

    asyncio.run(run())


def test_a_stream_that_waits_is_kept_alive_by_comments(monkeypatch):
    monkeypatch.setattr(sse, "KEEP_ALIVE_S", 0.01)

    async def run():
        engine = FakeEngine()
        engine.running = asyncio.Event()
        client = Client("/v1/chat/completions", CHAT | {"stream": True})
        exchange = asyncio.create_task(make_app(engine)(client.scope, client.receive, client.send))
        await until(lambda: client.text.count(": keep-alive\n\n") >= 2)
        engine.running.set()
        await exchange
        assert client.sent[0]["status"] == 200
        assert client.text.endswith("data: [DONE]\n\n")

    asyncio.run(run())


def test_a_client_that_does_not_read_is_dropped(monkeypatch):
    monkeypatch.setattr(sse, "KEEP_ALIVE_S", 0.005)
    monkeypatch.setattr(sse, "WRITE_TIMEOUT_S", 0.01)

    async def run():
        engine = FakeEngine()
        client = Client("/v1/chat/completions", CHAT | {"stream": True})

        async def never_done(message):
            client.sent.append(message)
            if len(client.sent) > 2:
                await asyncio.Event().wait()

        await make_app(engine)(client.scope, client.receive, never_done)
        assert engine.num_unfinished == 0

    asyncio.run(run())
