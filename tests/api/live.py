"""The application behind a real socket, in a thread of this process."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager

from octavo.server.listener import open_listener
from octavo.server.protocol import ConnectionLimits, make_server


class LiveServer:
    def __init__(self, app, port):
        self.app = app
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def exchange(self, data, timeout=20.0):
        """Send bytes, return everything until the server closes."""
        with self.connect(timeout) as connection:
            connection.sendall(data)
            received = b""
            while piece := connection.recv(65536):
                received += piece
            return received

    def connect(self, timeout=20.0):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)


@contextmanager
def live(app, limits=None, tls=None):
    listener = open_listener("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = make_server(app, 1.0, limits or ConnectionLimits(256, 256), tls)
    started = threading.Event()

    async def run():
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0)
        started.set()
        await serving

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    if not started.wait(20):
        raise TimeoutError("the server did not start")
    try:
        yield LiveServer(app, port)
    finally:
        server.should_exit = True
        thread.join(20)


def read_answer(connection):
    """Return one whole answer with a Content-Length from a kept connection."""
    received = connection.recv(65536)
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def request_bytes(method, path, body=None, *headers):
    """Return one HTTP/1.1 request as bytes; the connection is closed after its answer."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content
