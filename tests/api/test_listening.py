"""How the server is reached: TLS, a Unix socket, behind a proxy's prefix, from web pages, and by how many at once."""

import datetime
import http.client
import json
import socket
import ssl
import stat
import subprocess
import warnings

import pytest

from octavo.config.server_schema import ServerConfig
from octavo.errors import ConfigError, StartupError
from octavo.server.app import create_app
from octavo.server.listener import open_unix_listener
from octavo.server.protocol import ConnectionLimits
from octavo.server.tls import make_context
from tests.api.fake_engine import FakeEngine
from tests.api.live import live


def get(server, path="/health", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2"]
    try:
        subprocess.run([*command, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return str(key), str(cert)


def test_tls_serves_and_refuses_old_versions(certificate):
    key, cert = certificate
    with live(create_app(FakeEngine(), ServerConfig()), tls=make_context(key, cert, None)) as server:
        trust = ssl.create_default_context(cafile=cert)
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=20, context=trust)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, OSError)), old.wrap_socket(socket.create_connection(("127.0.0.1", server.port), timeout=20)):
            pass


def test_with_client_certificates_nobody_else_gets_in(certificate):
    key, cert = certificate
    with live(create_app(FakeEngine(), ServerConfig()), tls=make_context(key, cert, cert)) as server:
        trust = ssl.create_default_context(cafile=cert)
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=20, context=trust)
        with pytest.raises((ssl.SSLError, OSError)):
            connection.request("GET", "/health")
            connection.getresponse()
        trust.load_cert_chain(cert, key)
        known = http.client.HTTPSConnection("localhost", server.port, timeout=20, context=trust)
        known.request("GET", "/health")
        assert known.getresponse().status == 200
        known.close()


def test_tls_files_that_cannot_be_used_are_told(certificate, tmp_path):
    with pytest.raises(StartupError, match="TLS cannot start"):
        make_context(certificate[0], str(tmp_path / "nowhere.pem"), None)


def test_a_unix_socket_is_its_owners_alone_and_a_dead_one_is_replaced(tmp_path):
    path = tmp_path / "octavo.sock"
    open_unix_listener(path).close()  # the file stays
    listener = open_unix_listener(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listener.listen()
    with pytest.raises(StartupError, match="another program listens"):
        open_unix_listener(path)
    listener.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match="no socket"):
        open_unix_listener(tmp_path / "file")


def test_a_proxys_prefix_is_taken_off():
    with live(create_app(FakeEngine(), ServerConfig(root_path="/llm"))) as server:
        assert [get(server, path)[0] for path in ("/llm/health", "/health", "/llmhealth", "/llm/nowhere")] == [200, 200, 404, 404]


def test_a_request_keeps_the_id_that_its_caller_gave_it():
    with live(create_app(FakeEngine(), ServerConfig())) as server:
        assert get(server, **{"x-request-id": "trace-7"})[1]["x-request-id"] == "trace-7"
        made = get(server, **{"x-request-id": "no spaces"})[1]["x-request-id"]
        assert len(made) == 24


def test_web_pages_get_in_only_where_they_are_named():
    page = "https://app.example"
    with live(create_app(FakeEngine(), ServerConfig(allowed_origins=(page,)))) as server:
        body = json.dumps({"prompt": "a", "model": FakeEngine().model_names[0], "max_tokens": 1})

        def post(origin):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            connection.request("POST", "/v1/completions", body, {"Origin": origin, "Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.getheader("access-control-allow-origin")

        assert post(page) == (200, page)
        assert post("https://other.example") == (403, None)
    with live(create_app(FakeEngine(), ServerConfig())) as server:
        assert post(page)[0] == 403


def test_a_page_may_ask_beforehand_without_a_key():
    page = "https://app.example"
    with live(create_app(FakeEngine(), ServerConfig(allowed_origins=(page,), api_key=("k",)))) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        asks = {"Origin": page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        connection.request("OPTIONS", "/v1/completions", headers=asks)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("access-control-allow-origin")) == (200, page)
        assert get(server, "/v1/models")[0] == 401


def test_one_connection_too_many_is_told_and_a_place_is_given_back():
    with live(create_app(FakeEngine(), ServerConfig()), ConnectionLimits(in_all=2, per_client=8)) as server:
        first, second = server.connect(), server.connect()
        first.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in first.recv(4096)
        second.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in second.recv(4096)
        with server.connect() as third:
            refused = third.recv(4096)
        assert b"503" in refused
        assert b"too_many_connections" in refused
        first.close()
        second.close()
        assert get_soon(server) == 200


def get_soon(server):
    """The server sees a close a moment after it."""
    until = datetime.datetime.now() + datetime.timedelta(seconds=10)
    while (status := _status_or_none(server)) != 200 and datetime.datetime.now() < until:
        pass
    return status


def _status_or_none(server):
    try:
        return get(server)[0]
    except (http.client.HTTPException, OSError):
        return None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"root_path": "llm/"}, "/prefix"),
        ({"ssl_keyfile": "k"}, "give both"),
        ({"ssl_ca_certs": "c"}, "need ssl_keyfile"),
        ({"allowed_origins": ("app.example",)}, "https://name"),
        ({"allowed_origins": ("*",), "allow_credentials": True}, "name the origins"),
        ({"max_connections": 0}, "at least 1"),
        ({"log_format": "xml"}, "text, json"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        ServerConfig(**settings)
