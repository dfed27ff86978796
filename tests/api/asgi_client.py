"""A client of one exchange with the application, without a socket, that may leave at any time."""

import asyncio
import json


class Client:
    """One ASGI exchange whose client may leave."""

    def __init__(self, path, body):
        self.scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path, "raw_path": path.encode(),
            "query_string": b"", "root_path": "", "scheme": "http", "server": ("localhost", 80), "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }  # fmt: skip
        self.sent = []
        self.left = asyncio.Event()
        self.heard = asyncio.Event()
        self._body = json.dumps(body).encode()

    async def receive(self):
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)
        self.heard.set()

    @property
    def text(self):
        return b"".join(message.get("body", b"") for message in self.sent).decode()


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)
