"""The loop and its socket, with a fake worker, in this process: the loop runs on a thread, the test is its client."""

import contextlib
import os
import threading

import pytest
import zmq
from tests.fakes.history_worker import HistoryWorker, make_request, solo_output

from octavo.client.engine_wire import decode_from_engine
from octavo.engine.core import EngineCore
from octavo.engine.endpoint import EngineSocket
from octavo.engine.executor import InlineExecutor
from octavo.engine.loop import EngineLoop
from octavo.errors import StartupError
from octavo.kv.manager import KVManager
from octavo.messages.codec import encode
from octavo.messages.wire import AbortRequest, ControlReply, ControlRequest, EngineReady, StepOutputs
from octavo.scheduler.admission import Limits
from octavo.scheduler.scheduler import Scheduler

VOCAB = 500
READY = EngineReady(
    max_model_len=200,
    num_blocks=100,
    block_size=4,
    kv_cache_tokens=396,
    max_concurrency=2.0,
    vocab_size=VOCAB,
    max_num_seqs=8,
    max_num_batched_tokens=32,
    weight_bytes=1000,
    kv_bytes_per_token=64.0,
    startup_lines=[],
)


class Client:
    def __init__(self, context, directory):
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, 10_000)
        self.socket.connect(f"ipc://{directory}/engine")

    def send(self, message):
        self.socket.send(encode(message))

    def receive(self):
        return decode_from_engine(self.socket.recv())

    def receive_until(self, *request_ids):
        """Return (tokens, finish reasons) by request id once all these have ended."""
        tokens, endings = {}, {}
        while not set(request_ids) <= endings.keys():
            message = self.receive()
            assert isinstance(message, StepOutputs)
            for delta in message.deltas:
                tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
                if delta.finish_reason:
                    endings[delta.request_id] = delta.finish_reason
        return tokens, endings


@pytest.fixture
def engine(tmp_path):
    """Yield (make a client, the loop's core, the socket); the loop is stopped by a shutdown message at the end."""
    tmp_path.chmod(0o700)
    limits = Limits(max_model_len=200, max_num_seqs=8, max_num_batched_tokens=32, vocab_size=VOCAB)
    core = EngineCore(Scheduler(limits, KVManager(100, 4)), InlineExecutor(HistoryWorker(100, 4, VOCAB)))
    socket = EngineSocket(tmp_path)
    loop = EngineLoop(core, socket, READY)
    thread = threading.Thread(target=loop.run)
    thread.start()
    context = zmq.Context()
    clients = []

    def connect():
        clients.append(Client(context, tmp_path))
        return clients[-1]

    yield connect, core, socket
    if thread.is_alive():
        connect().send(ControlRequest(99, "shutdown"))
    thread.join(10)
    assert not thread.is_alive()
    socket.close()
    context.destroy(linger=0)


def test_a_clients_first_message_is_answered_with_ready(engine):
    client = engine[0]()
    client.send(ControlRequest(1, "ping"))
    assert client.receive() == READY
    assert client.receive() == ControlReply(1, True)


def test_requests_are_answered_and_the_engine_sleeps_again(engine):
    client = engine[0]()
    requests = [make_request(f"r{n}", list(range(n, n + 20)), max_tokens=10) for n in range(5)]
    for request in requests:
        client.send(request)
    assert client.receive() == READY
    tokens, endings = client.receive_until(*(request.request_id for request in requests))
    for request in requests:
        assert tokens[request.request_id] == solo_output(request, vocab_size=VOCAB, max_model_len=200)[0]
    assert set(endings.values()) == {"length"}


def test_two_clients_each_get_their_own_deltas(engine):
    one, other = engine[0](), engine[0]()
    for client, name in ((one, "a"), (other, "b")):
        client.send(make_request(name, [1, 2, 3], max_tokens=20))
        assert client.receive() == READY
    assert one.receive_until("a")[0].keys() == {"a"}
    assert other.receive_until("b")[0].keys() == {"b"}


def test_only_the_owner_can_abort_a_request(engine):
    one, other = engine[0](), engine[0]()
    one.send(make_request("a", [1, 2, 3], max_tokens=100))
    one.receive()
    other.send(AbortRequest(["a"]))
    assert one.receive_until("a")[1] == {"a": "length"}


def test_bad_frames_are_dropped_and_counted_and_a_neighbour_does_not_notice(engine):
    connect, _, socket = engine
    client, stranger = connect(), connect()
    request = make_request("a", [1, 2, 3], max_tokens=100)
    client.send(request)
    assert client.receive() == READY
    frames = [b"", b"\x80\x04\x95junk", os.urandom(100), encode(request)[:-3], encode(READY)]
    for frame in frames:
        stranger.socket.send(frame)
    stranger.socket.send_multipart([b"two", b"frames"])
    tokens, _ = client.receive_until("a")
    assert tokens["a"] == solo_output(request, vocab_size=VOCAB, max_model_len=200)[0]
    stranger.send(ControlRequest(1, "ping"))
    assert stranger.receive() == READY
    assert socket.num_bad_frames == len(frames) + 1


def test_a_request_with_a_taken_id_is_dropped_and_the_first_goes_on(engine):
    client = engine[0]()
    first = make_request("a", [1, 2, 3], max_tokens=100)
    client.send(first)
    client.send(make_request("a", [9], max_tokens=1))
    client.receive()
    assert client.receive_until("a")[0]["a"] == solo_output(first, vocab_size=VOCAB, max_model_len=200)[0]


def test_what_a_vanished_client_left_is_aborted(engine):
    connect = engine[0]
    gone, client = connect(), connect()
    client.send(ControlRequest(1, "ping"))
    assert client.receive() == READY
    client.receive()
    gone.send(make_request("orphan", [1, 2, 3], max_tokens=190))
    assert gone.receive() == READY
    gone.socket.close()
    client.send(make_request("a", [1, 2, 3], max_tokens=190))
    client.receive_until("a")
    while True:  # the orphan was aborted, so the blocks come back without its 190 tokens being waited for
        client.send(ControlRequest(2, "reset_prefix_cache"))
        message = client.receive()
        while not isinstance(message, ControlReply):
            message = client.receive()
        if message.ok:
            break


def test_shutdown_aborts_what_is_unfinished_and_tells_its_client(engine):
    client = engine[0]()
    client.send(make_request("a", [1, 2, 3], max_tokens=190))
    assert client.receive() == READY
    client.send(ControlRequest(7, "shutdown"))
    seen = []
    with contextlib.suppress(zmq.Again):
        while not any(isinstance(m, StepOutputs) and m.deltas and m.deltas[-1].finish_reason for m in seen):
            seen.append(client.receive())
    assert ControlReply(7, True) in seen
    assert seen[-1].deltas[-1].finish_reason == "abort"


def test_a_socket_in_a_directory_open_to_others_is_refused(tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(StartupError, match="0700"):
        EngineSocket(tmp_path)
    private = tmp_path / "private"
    private.mkdir(0o700)
    link = tmp_path / "link"
    link.symlink_to(private)
    with pytest.raises(StartupError, match="0700"):
        EngineSocket(link)
