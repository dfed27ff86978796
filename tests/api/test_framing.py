"""Group A of the corpus: bytes on the wire, against a real socket."""

import json
import socket
import time

import pytest

from octavo.server import body as body_reader
from octavo.server import lingering, protocol
from tests.api.calls import CHAT, make_app
from tests.api.live import live, read_answer, request_bytes

HOST = b"Host: localhost\r\n"
CLOSE = HOST + b"Connection: close\r\n"
MODELS = b"GET /v1/models HTTP/1.1\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server():
    with live(make_app()) as running:
        yield running


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer else None


REFUSED = [
    ("B001 TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {400, None}),
    ("B002 no version", b"GET /health\r\n\r\n", {400, 505}),
    ("B003 HTTP/3.7", b"GET /health HTTP/3.7\r\n" + HOST + b"\r\n", {400, 505}),
    ("B004 unknown method", b"FOO /v1/models HTTP/1.1\r\n" + HOST + b"\r\n", {405, 501}),
    ("B006 long line", b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\n" + HOST + b"\r\n", {414}),
    ("B007 large header", MODELS + HOST + b"X: " + b"a" * 2**20 + b"\r\n\r\n", {431}),
    ("B008 many headers", MODELS + HOST + b"".join(b"X%d: a\r\n" % i for i in range(5000)) + b"\r\n", {431}),
    ("B009 space in name", MODELS + HOST + b"X Y: a\r\n\r\n", {400}),
    ("B009 NUL", MODELS + HOST + b"X\x00: a\r\n\r\n", {400}),
    ("B010 folded", MODELS + HOST + b"X: a\r\n b\r\n\r\n", {400}),
    ("B011 no Host", MODELS + b"\r\n", {400}),
    ("B012 two Hosts", MODELS + HOST + HOST + b"\r\n", {400}),
    ("B014 foreign Host", MODELS + b"Host: evil.example\r\nConnection: close\r\n\r\n", {421}),
    ("B015 length abc", POST + b"Content-Length: abc\r\n\r\n", {400}),
    ("B016 length -1", POST + b"Content-Length: -1\r\n\r\n", {400}),
    ("B021 two lengths", POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", {400}),
    ("B022 gzip, chunked", POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    ("B022 xchunked", POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", {400, 501}),
    ("B024 huge chunk", POST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n", {400}),
    ("B025 bad chunk end", POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{0\r\n\r\n", {400}),
    ("B026 1 GiB announced", POST + b"Expect: 100-continue\r\nContent-Length: 1073741824\r\n\r\n", {413}),
    ("B029 HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}),
    ("B031 CONNECT", b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n", {405}),
    ("B031 TRACE", b"TRACE /v1/models HTTP/1.1\r\n" + CLOSE + b"\r\n", {405}),
    ("path tricks", b"GET /v1/../health HTTP/1.1\r\n" + CLOSE + b"\r\n", {404}),
    ("smuggling", POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
]


@pytest.mark.parametrize(("data", "statuses"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_bad_framing_is_refused_in_a_second_and_the_server_goes_on(server, data, statuses):
    started = time.monotonic()
    answer = server.exchange(data)
    assert status_of(answer) in statuses, answer[:200]
    assert time.monotonic() - started < 2
    assert answer == b"" or b'"error":{"message"' in answer
    assert status_of(server.exchange(request_bytes("GET", "/health"))) == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/nothing"])
def test_who_is_refused_while_still_sending_hears_why(server, path):
    """A connection closed with bytes unread would be reset, and the reset overtakes the answer."""
    head = request_bytes("POST", path, None, "Content-Type: application/json", "Content-Length: 50000000")
    for _ in range(3):
        with server.connect() as connection:
            connection.sendall(head)
            for _ in range(32):
                connection.sendall(b" " * 2**20)
            assert status_of(read_answer(connection)) == (413 if path == "/v1/chat/completions" else 404)


def test_who_is_refused_and_goes_on_sending_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(lingering, "LINGER_S", 0.05)
    with server.connect() as connection, pytest.raises(OSError):
        connection.sendall(POST + b"Content-Length: 50000000\r\n\r\n")
        while True:
            connection.sendall(b" " * 2**16)


def test_an_upgrade_that_is_not_offered_is_ignored(server):
    request = request_bytes("GET", "/health", None, "Upgrade: websocket").replace(b"Connection: close", b"Connection: Upgrade, close")
    assert status_of(server.exchange(request)) == 200


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_request_that_also_asks_for_http2_keeps_its_body(server, size):
    """What Java's client sends by default."""
    asks = ("Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA")
    request = request_bytes("POST", "/v1/chat/completions", CHAT, *asks).replace(
        b"Connection: close", b"Connection: Upgrade, HTTP2-Settings"
    )
    with server.connect() as connection:
        for _ in range(2):
            for begin in range(0, len(request), size):
                connection.sendall(request[begin : begin + size])
            answer = read_answer(connection)
            assert status_of(answer) == 200
            assert b'"prompt_tokens"' in answer
        connection.sendall(request * 2)
        assert b"HTTP/1.1 200" in read_answer(connection)


def test_a_body_that_never_comes_is_timed_out(server, monkeypatch):
    monkeypatch.setattr(body_reader, "BODY_TIMEOUT_S", 0.05)
    with server.connect() as connection:
        connection.sendall(POST + b"Content-Length: 100\r\n\r\n{")
        assert status_of(read_answer(connection)) == 408
        assert connection.recv(65536) == b""


def test_headers_that_never_come_are_timed_out(server, monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.05)
    with server.connect() as connection:
        connection.sendall(MODELS)
        assert status_of(read_answer(connection)) == 408
        assert connection.recv(65536) == b""


def test_a_kept_connection_answers_one_request_after_the_other(server):
    request = request_bytes("POST", "/v1/chat/completions", CHAT).replace(b"Connection: close\r\n", b"")
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(request)
            assert status_of(read_answer(connection)) == 200


def test_many_pipelined_requests_are_many_short_heads(server):
    request = request_bytes("GET", "/livez").replace(b"Connection: close\r\n", b"")
    with server.connect() as connection:
        connection.sendall(request * 4000)
        received = connection.recv(65536)
        while received.count(b"HTTP/1.1 200") < 4000:
            piece = connection.recv(65536)
            assert piece, received[-300:]
            received += piece


def test_pipelined_requests_that_nobody_waits_for_leave_nothing_behind(server):
    request = request_bytes("POST", "/v1/chat/completions", CHAT | {"stream": True}).replace(b"Connection: close\r\n", b"")
    with server.connect() as connection:
        connection.sendall(request * 100)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    assert status_of(server.exchange(request_bytes("GET", "/health"))) == 200
    deadline = time.monotonic() + 5
    while server.app.state.server.engine.num_unfinished and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.app.state.server.engine.num_unfinished == 0


def test_a_chunked_body_is_read(server):
    content = json.dumps(CHAT).encode()
    data = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
    assert status_of(server.exchange(data)) == 200
