import pytest

from octavo.errors import EngineError
from octavo.kv.block import HashedBlock
from octavo.kv.free_list import FreeList
from octavo.kv.pool import BlockPool


def content(name: str, block_hash: bytes | None = None) -> HashedBlock:
    return HashedBlock(block_hash or name.encode(), None, name.encode(), b"")


def test_a_free_list_keeps_its_order_through_pushes_and_removals():
    free = FreeList(6)
    assert list(free) == [1, 2, 3, 4, 5]
    free.remove(3)
    assert free.pop_front() == 1
    free.push_front(3)
    free.push_tail(1)
    assert list(free) == [3, 2, 4, 5, 1]
    assert len(free) == 5


def test_an_empty_free_list_takes_blocks_back():
    free = FreeList(2)
    free.pop_front()
    assert list(free) == []
    with pytest.raises(IndexError):
        free.pop_front()
    free.push_tail(1)
    assert list(free) == [1]


def test_the_least_recently_used_content_is_evicted_first_and_suffixes_before_prefixes():
    pool = BlockPool(6)
    old, recent = pool.take(2), pool.take(2)
    for block_id, name in zip([*old, *recent], "abcd", strict=True):
        pool.publish(block_id, content(name))
    pool.release(old)
    pool.release(recent)
    assert pool.free_ids() == [5, old[1], old[0], recent[1], recent[0]]
    pool.take(2)
    assert pool.find(content("a")) == old[0]
    assert pool.find(content("b")) is None


def test_blocks_without_content_are_taken_again_before_any_is_evicted():
    pool = BlockPool(4)
    first, second, third = pool.take(3)
    pool.publish(first, content("a"))
    pool.release([first, second, third])
    assert pool.free_ids() == [second, third, first]


def test_a_hash_collision_is_a_miss_not_a_wrong_block():
    pool = BlockPool(3)
    one, other = pool.take(2)
    pool.publish(one, content("a", b"same"))
    assert pool.find(content("b", b"same")) is None
    pool.publish(other, content("b", b"same"))
    assert pool.find(content("b", b"same")) == other
    assert pool.find(content("a", b"same")) == one


def test_of_two_blocks_with_equal_content_one_survives_the_other():
    pool = BlockPool(4)
    one, other = pool.take(2)
    pool.publish(one, content("a"))
    pool.publish(other, content("a"))
    pool.release([one])
    pool.forget([one])
    assert pool.find(content("a")) == other


def test_a_block_in_use_is_never_evicted():
    pool = BlockPool(4)
    (held,) = pool.take(1)
    pool.publish(held, content("a"))
    pool.release([held])
    pool.share([held])
    assert held not in pool.take(2)
    with pytest.raises(EngineError, match="1 blocks asked, 0 free"):
        pool.take(1)


def test_a_pool_needs_a_block_beside_the_null_block():
    with pytest.raises(EngineError, match="at least 2"):
        BlockPool(1)


@pytest.mark.parametrize("wrong", [0, 2])
def test_releasing_a_block_that_nobody_holds_raises_and_changes_nothing(wrong):
    pool = BlockPool(4)
    (held,) = pool.take(1)
    with pytest.raises(EngineError, match="not in use"):
        pool.release([held, wrong])
    assert pool.ref_count(held) == 1


def test_a_block_is_published_once_and_only_while_held():
    pool = BlockPool(3)
    with pytest.raises(EngineError, match="cannot be published"):
        pool.publish(1, content("a"))
    (held,) = pool.take(1)
    pool.publish(held, content("a"))
    with pytest.raises(EngineError, match="cannot be published"):
        pool.publish(held, content("b"))


def test_a_collision_further_up_the_chain_is_a_miss_as_well():
    mine, theirs = content("a", b"same"), content("b", b"same")  # one hash, other tokens
    pool = BlockPool(3)
    (held,) = pool.take(1)
    pool.publish(held, HashedBlock(b"next", theirs, b"c", b""))
    assert pool.find(HashedBlock(b"next", mine, b"c", b"")) is None
    assert pool.find(HashedBlock(b"next", content("b", b"same"), b"c", b"")) == held


def test_a_content_is_of_one_layer_group():
    pool = BlockPool(3, num_groups=2)
    (held,) = pool.take(1)
    pool.publish(held, content("a"), group=1)
    assert pool.find(content("a"), group=0) is None
    assert pool.find(content("a"), group=1) == held


def test_a_listener_hears_when_the_first_block_with_a_content_comes_and_the_last_one_goes():
    heard = []

    class Listener:
        def stored(self, group, content):
            heard.append(("stored", group, content))

        def removed(self, group, content):
            heard.append(("removed", group, content))

        def cleared(self):
            heard.append("cleared")

    pool = BlockPool(4, 2, Listener())
    content = HashedBlock(b"hash", None, b"tokens", b"")
    one, two, _ = pool.take(3)
    pool.publish(one, content, group=1)
    assert heard == [("stored", 1, content)]
    pool.publish(two, content, group=1)
    assert len(heard) == 1
    pool.forget([one])
    assert len(heard) == 1
    pool.release([two])
    pool.take(1)
    assert heard[1:] == [("removed", 1, content)]
    pool.forget_all()
    assert heard[2:] == ["cleared"]
