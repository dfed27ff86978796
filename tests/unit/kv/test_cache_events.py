"""Changes of the index as the events that others read: what shares an event and what begins a new one."""

import hashlib
from array import array

import msgspec

from octavo.kv.block import HashedBlock
from octavo.kv.events import AllBlocksCleared, BlockRemoved, BlockStored, Cleared, EventBatch, Removed, Stored, event_hash, to_events


def chain(name, count, parent=None):
    """Return `count` contents of two tokens, each behind the one before it."""
    contents = []
    for number in range(count):
        digest = hashlib.sha256(f"{name}{number}".encode()).digest()
        parent = HashedBlock(digest, parent, array("i", [10 * number, 10 * number + 1]).tobytes(), b"")
        contents.append(parent)
    return contents


def hashes(contents):
    return [event_hash(content) for content in contents]


def test_a_hash_is_the_low_64_bits():
    (content,) = chain("a", 1)
    assert event_hash(content) == int.from_bytes(content.block_hash, "big") % (1 << 64)


def test_blocks_of_one_chain_share_an_event():
    contents = chain("a", 3)
    assert to_events(Stored(0, content) for content in contents) == [BlockStored(hashes(contents), None, [0, 1, 10, 11, 20, 21], 2)]


def test_a_chain_that_goes_on_names_its_parent():
    contents = chain("a", 3)
    assert to_events([Stored(2, contents[2])]) == [BlockStored(hashes(contents[2:]), hashes(contents)[1], [20, 21], 2, group_idx=2)]


def test_another_chain_or_group_begins_a_new_event():
    one, two = chain("a", 2), chain("b", 2)
    stored = [Stored(0, one[0]), Stored(0, two[0]), Stored(0, two[1]), Stored(1, one[1]), Stored(0, one[1])]
    assert [(event.group_idx, event.block_hashes) for event in to_events(stored)] == [
        (0, hashes(one[:1])),
        (0, hashes(two)),
        (1, hashes(one[1:])),
        (0, hashes(one[1:])),
    ]


def test_two_blocks_behind_one_parent_are_two_events():
    (parent,) = chain("a", 1)
    children = [chain("b", 1, parent)[0], chain("c", 1, parent)[0]]
    events = to_events([Stored(0, parent), *(Stored(0, child) for child in children)])
    assert [event.block_hashes for event in events] == [hashes([parent, children[0]]), hashes(children[1:])]
    assert events[1].parent_block_hash == event_hash(parent)


def test_removals_share_an_event_within_a_group_until_something_else_happens():
    contents = chain("a", 4)
    removed = [Removed(0, contents[0]), Removed(0, contents[1]), Removed(1, contents[0]), Cleared(), Removed(1, contents[2])]
    first, second, third, fourth = hashes(contents)
    assert to_events(removed) == [
        BlockRemoved([first, second]),
        BlockRemoved([first], group_idx=1),
        AllBlocksCleared(),
        BlockRemoved([third], group_idx=1),
    ]
    mixed = to_events([Removed(0, contents[0]), Stored(0, contents[3]), Removed(0, contents[1])])
    assert mixed == [BlockRemoved([first]), BlockStored([fourth], third, [30, 31], 2), BlockRemoved([second])]


def test_on_the_wire_a_batch_and_its_events_are_arrays_and_an_event_begins_with_its_name():
    batch = EventBatch(1.5, [BlockStored([1, 2], None, [3, 4], 2), BlockRemoved([5], group_idx=1), AllBlocksCleared()])
    ts, events, *_ = msgspec.msgpack.decode(msgspec.msgpack.encode(batch))
    assert ts == 1.5
    stored, removed, cleared = events
    assert stored[:5] == ["BlockStored", [1, 2], None, [3, 4], 2]
    assert removed == ["BlockRemoved", [5], "GPU", 1]
    assert cleared == ["AllBlocksCleared"]
