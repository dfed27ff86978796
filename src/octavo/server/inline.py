"""One request to the application without a socket: the same gate, schemas and handlers as over HTTP."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message

HOST = b"localhost"  # a name that the gate of a server on loopback answers to


async def post(app: ASGIApp, path: str, body: bytes) -> tuple[int, str, bytes]:
    """Return (status, x-request-id, body) of the whole answer to a JSON body."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", HOST), (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
        "server": ("localhost", 0),
        "client": ("localhost", 0),
    }
    asked: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    answered = asyncio.Event()
    status, request_id, parts = 0, "", []

    async def receive() -> Message:
        if asked:
            return asked.pop()
        await answered.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, request_id
        if message["type"] == "http.response.start":
            status = message["status"]
            request_id = dict(message["headers"]).get(b"x-request-id", b"").decode()
        else:
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                answered.set()

    await app(scope, receive, send)
    return status, request_id, b"".join(parts)
