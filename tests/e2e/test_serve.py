"""`octavo serve` as a process, with a real (tiny, random) model on the reference backend."""

import concurrent.futures
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from tests.fakes.tiny_llama import write_tiny_llama

PRINTABLE = [chr(byte) for byte in range(33, 127)] + [
    chr(0x100 + byte) for byte in range(33)
]  # GPT-2's letters for bytes 33..126 and 0..32
CHAT_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with weights, a byte-level tokenizer for ASCII and a chat template."""
    folder = write_tiny_llama(tmp_path_factory.mktemp("tiny"))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {letter: index for index, letter in enumerate(PRINTABLE)}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    return folder


class Server:
    def __init__(self, model, *flags):
        command = [sys.executable, "-m", "octavo.cli.main", "serve", str(model), "--served-model-name", "tiny", "--backend", "reference"]
        self.process = subprocess.Popen([*command, "--port", "0", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ready = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", self.ready)
        if found is None:
            raise RuntimeError(self.process.stderr.read())
        self.port = int(found.group(1))

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as response:
            return response.read().decode()

    def post(self, path, **body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps({"model": "tiny"} | body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.read().decode()

    def complete(self, prompt, **fields):
        return json.loads(self.post("/v1/completions", prompt=prompt, temperature=0, **fields))

    def leave_early(self, prompt, num_bytes):
        """Ask for a stream, read a little of it and go away."""
        body = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": 120, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(head.encode() + body)
            connection.recv(num_bytes)

    def gauge(self, name):
        return float(re.search(rf"^vllm:{name}{{.*}} (\S+)$", self.get("/metrics"), re.MULTILINE).group(1))

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.fixture(scope="module")
def server(model):
    running = Server(model, "--max-num-seqs", "8", "--kv-cache-memory-bytes", "4M")
    yield running
    running.stop()


def test_the_ready_line_says_where_what_and_how_much(server):
    assert "model tiny" in server.ready
    assert "context 256 tokens" in server.ready
    assert server.get("/health") == ""


def test_a_chat_is_answered_streamed_and_whole_alike(server):
    asked = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    whole = json.loads(server.post("/v1/chat/completions", **asked))
    *lines, done = server.post("/v1/chat/completions", stream=True, **asked).strip().split("\n\n")
    text = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content", "") for line in lines)
    assert done == "data: [DONE]"
    assert text == whole["choices"][0]["message"]["content"]
    assert whole["usage"]["completion_tokens"] == 12


def test_a_repeated_prompt_is_found_in_the_cache_and_answered_alike(server):
    first = server.complete("A prompt that is longer than two blocks of tokens", max_tokens=8)
    second = server.complete("A prompt that is longer than two blocks of tokens", max_tokens=8)
    assert second["choices"][0]["text"] == first["choices"][0]["text"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 48


def test_clients_that_leave_disturb_nobody_and_leave_nothing(server):
    prompts = [f"{number} bottles of beer" for number in range(12)]
    alone = [server.complete(prompt, max_tokens=24)["choices"][0]["text"] for prompt in prompts]
    rng = random.Random(7)
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        leaving = [pool.submit(server.leave_early, f"{rng.random()} go", rng.randrange(1, 2000)) for _ in range(24)]
        answers = list(pool.map(lambda prompt: server.complete(prompt, max_tokens=24)["choices"][0]["text"], prompts))
        for future in leaving:
            future.result()
    assert answers == alone
    deadline = time.monotonic() + 10
    while server.gauge("num_requests_running") and time.monotonic() < deadline:
        pass
    assert server.gauge("num_requests_running") == server.gauge("num_requests_waiting") == server.gauge("kv_cache_usage_perc") == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="the server lets nobody but root look at its files")
def test_only_the_configured_address_listens(server):
    links = [str(link.readlink()) for link in Path(f"/proc/{server.process.pid}/fd").iterdir() if link.is_symlink()]
    sockets = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    rows = [line.split() for line in Path(f"/proc/{server.process.pid}/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and row[9] in sockets]
    assert listening == [f"0100007F:{server.port:04X}"]


def test_a_taken_port_ends_the_second_server_at_once(server, model):
    command = [sys.executable, "-m", "octavo.cli.main", "serve", str(model), "--port", str(server.port)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert second.returncode == 3
    assert "another program listens there" in second.stderr


def test_sigterm_lets_answers_end_and_exits_0(model):
    server = Server(model)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.complete, "Tell me", max_tokens=100, ignore_eos=True)
        while not server.gauge("num_requests_running"):
            pass
        assert server.stop() == 0
        assert answer.result()["usage"]["completion_tokens"] == 100


def test_sigterm_at_any_time_of_loading_exits_0(model):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "octavo.cli.main", "serve", str(model), "--backend", "reference", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez"):
                break
        except OSError:
            continue
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0


def test_a_bad_key_ends_everything_and_leaves_no_engine(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("two words\n")
    keys.chmod(0o600)
    command = [sys.executable, "-m", "octavo.cli.main", "serve", str(model), "--port", "0", "--api-key-file", str(keys)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)  # returns when every holder of its pipes has ended
    assert ended.returncode == 2
    assert "without spaces" in ended.stderr
