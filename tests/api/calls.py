"""Calls into the application without a socket."""

import asyncio
import json

import httpx

from octavo.config.server_schema import ServerConfig
from octavo.server.app import create_app
from tests.api.fake_engine import FakeEngine

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
COMPLETION = {"model": "tiny", "prompt": "hi", "max_tokens": 4}


def make_app(engine=None, **settings):
    return create_app(engine or FakeEngine(), ServerConfig(**settings))


def call(app, method, path, *, body=None, content=None, headers=None):
    """Return the answer of one request; `body` is sent as JSON, `content` as it is."""
    given = {"content-type": "application/json"} if body is not None else {}
    if body is not None:
        content = json.dumps(body).encode("utf-8", "surrogatepass")

    async def run():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
            return await client.request(method, path, content=content, headers=given | (headers or {}))

    return asyncio.run(run())


def post(app, path, body, **headers):
    return call(app, "POST", path, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def events(response):
    """Return the parsed events of a stream, [DONE] as a string."""
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def assert_openai_error(response):
    """Assert the shape that every error has, and that it gives nothing away."""
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    error = response.json()["error"]
    assert set(response.json()) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"]
    for marker in ("Traceback", "0x", "/usr/", "/home/", "/root/", "site-packages", "object at", "pydantic", "None"):
        assert marker not in error["message"], error["message"]
    return error
