"""KV events as a subscriber gets them: what they say, in which order, and how a late one catches up."""

from collections import Counter

import msgspec
import pytest
import zmq

from octavo.config.flag_values import read_kv_events
from octavo.config.schema import KVEventsConfig
from octavo.engine.kv_events import KVEventPublisher
from octavo.errors import ConfigError, StartupError
from octavo.kv.events import event_hash
from octavo.kv.manager import KVManager

WAIT_MS = 5000


@pytest.fixture
def endpoints(tmp_path):
    return {"endpoint": f"ipc://{tmp_path}/events", "replay_endpoint": f"ipc://{tmp_path}/replay"}


@pytest.fixture
def context():
    with zmq.Context() as context:
        yield context


def subscribe(context, publisher, endpoint):
    """Return a subscriber that is known to be connected: it has heard the publisher."""
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(endpoint)
    while not socket.poll(50):
        publisher.cleared()
    return socket


def receive(socket, count):
    """Return `count` events that come after those of AllBlocksCleared by which subscribe() listened."""
    events, last = [], None
    while len(events) < count:
        assert socket.poll(WAIT_MS), f"only {events}"
        _, sequence, payload = socket.recv_multipart()
        number = int.from_bytes(sequence, "big")
        assert last is None or number == last + 1
        last = number
        _, batch, rank = msgspec.msgpack.decode(payload)
        assert rank is None
        events += batch
        while events and events[0] == ["AllBlocksCleared"]:
            events.pop(0)
    return events


def computed(kv, tokens, **keys):
    table = kv.open(**keys)
    assert kv.try_admit(table, kv.lookup(table, tokens), len(tokens), len(tokens), spare=0)
    kv.commit(table, tokens, len(tokens))
    return table


def test_a_subscriber_hears_what_is_stored_what_is_evicted_and_that_all_is_cleared(endpoints, context):
    publisher = KVEventPublisher(KVEventsConfig(**endpoints))
    socket = subscribe(context, publisher, endpoints["endpoint"])
    kv = KVManager(6, 4, listener=publisher)
    table = computed(kv, list(range(9)), cache_salt="secret")
    one, two = (event_hash(content) for content in table.hashed)
    kv.release(table)
    kv.release(computed(kv, list(range(50, 68))))  # all five blocks
    assert kv.reset_prefix_cache()
    publisher.close()
    stored, removed, stored_next, cleared = receive(socket, 4)
    # Low 64 bits of the hashes, parent, ids, block size, no adapter, the medium, and no word of the salt.
    assert stored == ["BlockStored", [one, two], None, list(range(8)), 4, None, "GPU", None, None, 0]
    assert removed == ["BlockRemoved", [two, one], "GPU", 0]
    assert stored_next[3] == list(range(50, 66))
    assert cleared == ["AllBlocksCleared"]


def test_at_every_moment_the_events_so_far_give_what_can_be_found(endpoints, context):
    publisher = KVEventPublisher(KVEventsConfig(**endpoints))
    socket = subscribe(context, publisher, endpoints["endpoint"])
    kv = KVManager(9, 4, listener=publisher)
    for start in (0, 20, 0, 40, 0, 60):
        kv.release(computed(kv, list(range(start, start + 13))))
    held = [computed(kv, list(range(0, 13))), computed(kv, list(range(0, 9)))]
    for table in held:
        kv.release(table)
    expected = Counter(event_hash(content) for block in range(1, 9) if (content := kv.pool.content(block)))
    publisher.close()
    found = Counter()
    while socket.poll(200):
        for event in msgspec.msgpack.decode(socket.recv_multipart()[2])[1]:
            if event[0] == "BlockStored":
                found.update(event[1])
            elif event[0] == "BlockRemoved":
                found.subtract(event[1])
            else:
                found.clear()
    assert set(found.values()) <= {0, 1}
    assert {block_hash for block_hash, count in found.items() if count} == set(expected)


def test_a_late_subscriber_gets_what_it_missed_from_the_replay(endpoints, context):
    publisher = KVEventPublisher(KVEventsConfig(**endpoints, buffer_steps=3))
    socket = subscribe(context, publisher, endpoints["endpoint"])
    seen = {}
    for _ in range(5):
        publisher.cleared()
        assert socket.poll(WAIT_MS)
        _, sequence, payload = socket.recv_multipart()
        seen[sequence] = payload
    while socket.poll(300):
        _, sequence, payload = socket.recv_multipart()
        seen[sequence] = payload
    last = int.from_bytes(max(seen), "big")
    asking = context.socket(zmq.DEALER)
    asking.setsockopt(zmq.LINGER, 0)
    asking.connect(endpoints["replay_endpoint"])
    asking.send_multipart([b"", b"not a number"])
    asking.send_multipart([b"", (last - 1).to_bytes(8, "big")])
    replayed = []
    while True:
        assert asking.poll(WAIT_MS)
        _, sequence, payload = asking.recv_multipart()
        if int.from_bytes(sequence, "big", signed=True) == -1:
            break
        replayed.append((int.from_bytes(sequence, "big"), payload == seen[sequence]))
    assert replayed == [(last - 1, True), (last, True)]
    asking.close()
    publisher.close()


def test_an_endpoint_in_use_is_refused_by_name(endpoints):
    config = KVEventsConfig(endpoint="tcp://127.0.0.1:0")
    publisher = KVEventPublisher(config)  # a port of the system's choice
    publisher.close()
    with pytest.raises(StartupError, match="no-such-directory"):
        KVEventPublisher(KVEventsConfig(endpoint="ipc:///no-such-directory/x"))


@pytest.mark.parametrize("endpoint", ["tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://10.1.2.3:5557", "tcp://127.0.0.1.evil:5557"])
def test_events_leave_the_machine_only_on_request(endpoint):
    with pytest.raises(ConfigError, match="allow_remote"):
        KVEventsConfig(endpoint=endpoint)
    with pytest.raises(ConfigError, match="allow_remote"):
        KVEventsConfig(replay_endpoint=endpoint)
    assert KVEventsConfig(endpoint=endpoint, allow_remote=True).endpoint == endpoint


def test_the_flag_takes_a_json_object_and_names_what_is_wrong():
    assert read_kv_events('{"topic": "kv", "enable_kv_cache_events": false}') == KVEventsConfig(topic="kv", enable_kv_cache_events=False)
    assert not read_kv_events('{"publisher": "null"}').is_on
    for text, named in [("[]", "JSON object"), ("{", "JSON object"), ('{"topics": ""}', "did you mean topic"), ('{"hwm": "x"}', "hwm")]:
        with pytest.raises(ConfigError, match=named):
            read_kv_events(text)
