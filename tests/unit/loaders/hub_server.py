"""A stand-in for the Hugging Face Hub on loopback: one repository of files, served by the few routes that a snapshot needs."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlparse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubHandler(BaseHTTPRequestHandler):
    files: dict[str, bytes]
    requests: list[str]

    def do_HEAD(self):
        self.answer(send_body=False)

    def do_GET(self):
        self.answer(send_body=True)

    def answer(self, *, send_body: bool):
        path = urlparse(self.path).path
        self.requests.append(path)
        if path.startswith("/api/models/org/tiny/tree/"):
            return self.reply(json.dumps(self.tree()).encode(), send_body, "application/json")
        if path == "/api/models/org/tiny" or path.startswith("/api/models/org/tiny/revision/"):
            siblings = [{"rfilename": name, "size": len(data)} for name, data in self.files.items()]
            return self.reply(json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": siblings}).encode(), send_body, "application/json")
        name = path.rpartition("/")[2]
        if path.startswith("/org/tiny/resolve/") and name in self.files:
            return self.reply(self.files[name], send_body, "application/octet-stream")
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        return self.end_headers()

    def tree(self):
        return [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()} for name, data in self.files.items()
        ]

    def reply(self, data: bytes, send_body: bool, kind: str):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if send_body:
            self.wfile.write(data)

    def log_message(self, *args):
        pass


@contextmanager
def hub_server(files: dict[str, bytes]):
    """Serve `files` as org/tiny; yield the address and the list of paths asked for."""
    handler = type("Handler", (HubHandler,), {"files": files, "requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler.requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
