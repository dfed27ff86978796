"""The engine as a process, with a real (tiny, random) model: the wire, the load, its end."""

import os
import random
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
import zmq
from tests.fakes.history_worker import make_request
from tests.fakes.tiny_llama import VOCAB, write_tiny_llama

from octavo.client.engine_wire import decode_from_engine
from octavo.config.schema import CacheConfig, EngineConfig, ModelConfig, RuntimeConfig, SchedulerConfig
from octavo.engine.startup import start_engine
from octavo.messages.codec import encode
from octavo.messages.wire import AbortRequest, ControlReply, ControlRequest, EngineFailed, EngineReady, StepOutputs

COMMAND = [sys.executable, "-m", "octavo.engine.process"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write_tiny_llama(tmp_path_factory.mktemp("tiny")))


def config_for(model, backend="reference", **cache):
    return EngineConfig(
        model=ModelConfig(model=model),
        cache=CacheConfig(**cache),
        scheduler=SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=48),
        runtime=RuntimeConfig(backend=backend),
    )


class Engine:
    def __init__(self, config):
        self.directory = tempfile.TemporaryDirectory(prefix="octavo-test-")
        self.process = subprocess.Popen([*COMMAND, self.directory.name], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self.process.stdin.write(msgspec.msgpack.encode(config))
        self.process.stdin.close()
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 5)
        self.socket.setsockopt(zmq.RCVTIMEO, 30_000)
        self.socket.connect(f"ipc://{self.directory.name}/engine")
        self.send(ControlRequest(0, "ping"))

    def send(self, message):
        self.socket.send(encode(message))

    def receive(self):
        return decode_from_engine(self.socket.recv())

    def wait(self):
        """Return (exit status, log)."""
        log = self.process.stderr.read().decode()
        return self.process.wait(30), log

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()
        self.context.destroy(linger=0)
        self.directory.cleanup()


@pytest.fixture
def launch():
    engines = []

    def start(config):
        engines.append(Engine(config))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def many_requests(count):
    chooser = random.Random(7)
    shared = [chooser.randrange(VOCAB) for _ in range(40)]
    for number in range(count):
        own = [chooser.randrange(VOCAB) for _ in range(chooser.randint(1, 30))]
        yield make_request(
            f"r{number}",
            [*shared[: chooser.choice([0, 20, 40])], *own],
            max_tokens=chooser.randint(1, 90),
            temperature=chooser.choice([0.0, 1.0]),
            ignore_eos=True,
        )


def solo_answers(model, backend, requests):
    core, _ = start_engine(config_for(model, backend, enable_prefix_caching=False))
    answers = {}
    for request in requests:
        core.add(request)
        answers[request.request_id] = []
        while core.has_work:
            for delta in core.step().deltas:
                answers[request.request_id] += delta.token_ids
    return answers


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_32_concurrent_requests_with_random_aborts_leave_nothing_behind_and_answer_as_alone(model, launch, backend):
    if backend == "native":
        pytest.importorskip("octavo.backends.native._native", reason="the native library is not built")
    engine = launch(config_for(model, backend, num_gpu_blocks_override=18))  # one full-length request and a block: preemption is sure
    requests = list(many_requests(32))
    expected = solo_answers(model, backend, requests)
    ready = engine.receive()
    assert isinstance(ready, EngineReady)
    assert "engine ready in" in ready.startup_lines[-1]
    assert engine.receive() == ControlReply(0, True)
    for request in requests:
        engine.send(request)

    chooser = random.Random(3)
    tokens, endings, num_preemptions = {request.request_id: [] for request in requests}, {}, 0
    while len(endings) < len(requests):
        message = engine.receive()
        assert isinstance(message, StepOutputs)
        num_preemptions += message.stats.num_preemptions if message.stats else 0
        for delta in message.deltas:
            assert delta.request_id not in endings, "a delta after the final one"
            tokens[delta.request_id] += delta.token_ids
            if delta.finish_reason:
                endings[delta.request_id] = delta.finish_reason
        if chooser.random() < 0.1:
            engine.send(AbortRequest([chooser.choice(requests).request_id, "unknown"]))

    for request in requests:
        whole, got = expected[request.request_id], tokens[request.request_id]
        assert got == (whole if endings[request.request_id] == "length" else whole[: len(got)])
    assert set(endings.values()) == {"length", "abort"}
    assert num_preemptions > 0
    engine.send(ControlRequest(1, "reset_prefix_cache"))
    assert engine.receive() == ControlReply(1, True), "a block is still held"
    engine.process.terminate()
    assert engine.wait() == (0, ""), "an engine that was told to stop has nothing to say"


def test_sigint_is_ignored_and_sigterm_ends_what_runs_with_abort(model, launch):
    engine = launch(config_for(model))
    assert isinstance(engine.receive(), EngineReady)
    engine.receive()
    engine.process.send_signal(signal.SIGINT)
    engine.send(make_request("long", [1, 2, 3], max_tokens=250, ignore_eos=True))
    assert engine.receive().deltas[0].token_ids
    engine.process.terminate()
    last = engine.receive()
    while not (last.deltas and last.deltas[-1].finish_reason):
        last = engine.receive()
    assert last.deltas[-1].finish_reason == "abort"
    assert engine.wait()[0] == 0


def test_an_engine_that_cannot_start_says_why_and_exits_with_1(launch):
    engine = launch(config_for("no-such-model"))
    failed = engine.receive()
    assert isinstance(failed, EngineFailed)
    assert "no-such-model" in failed.message
    status, log = engine.wait()
    assert status == 1
    assert "Traceback" not in log


def test_an_engine_dies_with_its_parent(model):
    """The parent starts an engine, prints its id once it answers, and is killed."""
    with tempfile.TemporaryDirectory(prefix="octavo-test-") as directory:
        config = Path(directory) / "config"
        config.write_bytes(msgspec.msgpack.encode(config_for(model)))
        program = (
            "import subprocess, sys, time\n"
            f"engine = subprocess.Popen({COMMAND!r} + [{directory!r}], stdin=open({str(config)!r}, 'rb'), stderr=subprocess.DEVNULL)\n"
            "print(engine.pid, flush=True)\n"
            "engine.wait()\n"
        )
        parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        engine_pid = int(parent.stdout.readline())
        engine = os.pidfd_open(engine_pid)  # readable once the process has ended
        ended = select.poll()
        ended.register(engine, select.POLLIN)
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RECONNECT_IVL, 5)
            socket.setsockopt(zmq.RCVTIMEO, 30_000)
            socket.connect(f"ipc://{directory}/engine")
            socket.send(encode(ControlRequest(0, "ping")))
            assert isinstance(decode_from_engine(socket.recv()), EngineReady)
        assert ended.poll(0) == []
        parent.kill()
        parent.communicate()
        assert ended.poll(30_000)
        os.close(engine)


def test_core_dumps_are_off(model, launch):
    engine = launch(config_for(model))
    assert isinstance(engine.receive(), EngineReady)
    limits = Path(f"/proc/{engine.process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    assert line.split()[4:6] == ["0", "0"]
