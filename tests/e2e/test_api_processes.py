"""`octavo serve --api-server-count 2`: two processes that answer as one server, and what becomes of the others when one dies."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from tests.fakes.tiny_chat import write_tiny_chat

LONG = {"prompt": "hello world", "max_tokens": 200, "temperature": 0, "ignore_eos": True}


class Server:
    def __init__(self, model, *flags):
        command = [sys.executable, "-m", "octavo.cli.main", "serve", str(model), "--served-model-name", "tiny", "--backend", "reference"]
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # the server's, for as long as it runs
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--api-server-count", "2", *flags], stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.ready = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", self.ready)
        if found is None:
            self.log.seek(0)
            raise RuntimeError(self.log.read())
        self.port = int(found.group(1))

    def children(self, module):
        """Return the process ids of the server's children that run this module."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid and module in (folder / "cmdline").read_text():
                    found.append(int(folder.name))
            except OSError:
                continue
        return sorted(found)

    def processes(self):
        return self.children("octavo.server.processes.process")

    def connect_each(self):
        """Return one connection to each API process, by process id."""
        connections = {}
        until(lambda: len(self.processes()) == 2)
        while len(connections) < 2:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            ask(connection, "GET", "/livez")
            connections.setdefault(self._holder(connection), connection)
        return connections

    def _holder(self, connection):
        """Return the API process that has the other end."""
        ours = f":{connection.sock.getsockname()[1]:04X}"
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        inode = next(line[9] for line in lines if line[1].endswith(f":{self.port:04X}") and line[2].endswith(ours))
        for process_id in self.processes():
            for link in Path(f"/proc/{process_id}/fd").iterdir():
                if link.is_symlink() and str(link.readlink()) == f"socket:[{inode}]":
                    return process_id
        raise LookupError("no API process has that connection")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)
        return self.process.returncode


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def ask(connection, method, path, **body):
    """Return (status, body) of an exchange."""
    sent = json.dumps({"model": "tiny"} | body) if method == "POST" else None
    connection.request(method, path, sent, {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    return answer.status, json.loads(text) if text.startswith("{") else text


def complete(connection, **body):
    status, answer = ask(connection, "POST", "/v1/completions", **body)
    return status, answer["choices"][0]["text"] if status == 200 else answer["error"]["code"]


def metric(connection, name):
    """Return the sum of a metric's series."""
    _, text = ask(connection, "GET", "/metrics")
    return sum(float(value) for value in re.findall(rf"^vllm:{name}\S* (\S+)$", text, re.MULTILINE))


class Stream(threading.Thread):
    """A streamed answer that is read beside the test; `text` is whole when it has ended, and ends early when the connection does."""

    def __init__(self, port_connection, **body):
        super().__init__()
        self.text, self.is_whole = "", False
        self._connection = port_connection
        self._body = json.dumps({"model": "tiny", "stream": True} | body)
        self.start()

    def run(self):
        self._connection.request("POST", "/v1/completions", self._body, {"content-type": "application/json"})
        try:
            for line in self._connection.getresponse():
                if line.startswith(b"data: {"):
                    self.text += json.loads(line[6:])["choices"][0]["text"]
                self.is_whole |= line == b"data: [DONE]\n"
        except (http.client.HTTPException, OSError):
            pass


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_chat(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def server(model):
    running = Server(model, "--max-num-queued-reqs", "4", "--kv-cache-memory-bytes", "8M")
    yield running
    assert running.stop() == 0


def test_both_processes_answer_alike_and_each_tells_the_metrics_of_both(server):
    connections = list(server.connect_each().values())
    before = metric(connections[0], "requests_accepted_total")
    answers = [complete(connection, prompt="hello", max_tokens=8, temperature=0) for connection in connections]
    assert answers[0] == answers[1]
    assert answers[0][0] == 200
    for connection in connections:
        assert metric(connection, "requests_accepted_total") == before + 2
        assert metric(connection, "requests_in_flight") == 0
        assert metric(connection, "iteration_tokens_total_count") > 0
        assert ask(connection, "GET", "/health")[0] == 200


def test_the_cap_holds_for_both_together(server):
    here, there = server.connect_each().values()
    streams = [Stream(connection, **LONG) for pair in (server.connect_each(), server.connect_each()) for connection in pair.values()]
    until(lambda: ask(here, "GET", "/load")[1]["server_load"] == 4)
    for connection in (here, there):
        assert complete(connection, prompt="hello", max_tokens=1) == (503, "server_overloaded")
        assert metric(connection, "requests_in_flight") == 4
    for stream in streams:
        stream.join()
    assert all(stream.is_whole for stream in streams)
    assert len({stream.text for stream in streams}) == 1
    assert ask(there, "GET", "/load")[1]["server_load"] == 0


def test_a_response_stored_by_one_is_found_and_forgotten_by_the_other(server):
    here, there = server.connect_each().values()
    status, first = ask(here, "POST", "/v1/responses", input="hello", max_output_tokens=4)
    assert status == 200
    assert ask(there, "GET", f"/v1/responses/{first['id']}") == (200, first)
    assert ask(there, "POST", "/v1/responses", input="more", max_output_tokens=4, previous_response_id=first["id"])[0] == 200
    assert ask(there, "DELETE", f"/v1/responses/{first['id']}")[0] == 200
    assert ask(here, "GET", f"/v1/responses/{first['id']}")[0] == 404


def test_a_process_that_dies_takes_its_own_requests_and_is_replaced(server):
    connections = server.connect_each()
    doomed, spared = connections
    expected = complete(connections[spared], **LONG)[1]
    aborted = metric(connections[spared], 'request_success_total{engine="0",finished_reason="abort"')
    streams = {process_id: Stream(connection, **LONG) for process_id, connection in server.connect_each().items()}
    until(lambda: all(stream.text for stream in streams.values()))
    os.kill(doomed, signal.SIGKILL)
    for stream in streams.values():
        stream.join()
    assert not streams[doomed].is_whole
    assert streams[spared].is_whole
    assert streams[spared].text == expected
    until(lambda: len(server.processes()) == 2 and doomed not in server.processes())
    for connection in server.connect_each().values():
        until(lambda connection=connection: ask(connection, "GET", "/health")[0] == 200)
        assert complete(connection, **LONG) == (200, expected)
        assert metric(connection, "requests_in_flight") == 0
        assert metric(connection, 'request_success_total{engine="0",finished_reason="abort"') == aborted + 1
    until(lambda: metric(connections[spared], "num_requests_running") == 0)


def test_an_engine_that_dies_is_a_pause_in_the_streams_of_both(server):
    connections = server.connect_each()
    expected = complete(next(iter(connections.values())), **LONG)[1]
    streams = [Stream(connection, **LONG) for connection in server.connect_each().values()]
    until(lambda: all(stream.text for stream in streams))
    (engine,) = server.children("octavo.engine.process")
    os.kill(engine, signal.SIGKILL)
    for stream in streams:
        stream.join()
    assert [(stream.is_whole, stream.text) for stream in streams] == [(True, expected)] * 2
    for connection in connections.values():
        assert ask(connection, "GET", "/health")[0] == 200


def test_a_pause_which_the_other_process_would_not_hear_of_is_refused(model):
    server = Server(model, "--enable-admin-endpoints")
    try:
        (here, _) = server.connect_each().values()
        status, answer = ask(here, "POST", "/pause")
        assert (status, answer["error"]["code"]) == (400, "unsupported_task")
        assert ask(here, "POST", "/reset_prefix_cache") == (200, {"success": True})
        streams = [Stream(connection, **LONG) for connection in server.connect_each().values()]
        until(lambda: all(stream.text for stream in streams))
    finally:
        assert server.stop() == 0, "SIGTERM lets both end their answers"
    for stream in streams:
        stream.join()
        assert stream.is_whole


def test_what_no_process_can_start_with_ends_all_with_its_own_words(model):
    with pytest.raises(RuntimeError, match="template"):
        Server(model, "--chat-template", "{% if %}")
