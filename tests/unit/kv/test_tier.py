import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.fakes.inline_executor import InlineFutures

from octavo.kv.block import BlockKey
from octavo.kv.cost import FORGIVENESS, LoadCost
from octavo.kv.groups import Groups
from octavo.kv.host_blocks import HostBlocks
from octavo.kv.manager import KVManager
from octavo.kv.tier import MAX_PENDING_BYTES, KVTier
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan

SIZE = 8


def key(name):
    return BlockKey(hashlib.sha256(name.encode()).digest(), 0)


class Pool:
    """Blocks whose bytes are their number."""

    def __init__(self):
        self.num_reads = 0

    def read_block(self, block_id):
        self.num_reads += 1
        return block_id.to_bytes(SIZE, "little")


def make_kv(num_blocks=10, *, tier_blocks=100, mode="auto", block_size=4):
    pool, store = Pool(), HostBlocks(tier_blocks * SIZE, SIZE)
    return KVManager(num_blocks, block_size, tier=KVTier(store, pool.read_block, SIZE, mode, InlineFutures)), pool, store


def computed(kv, tokens, *, was_preempted=False):
    table = kv.open()
    assert kv.is_ready(table, tokens, was_preempted=was_preempted)
    hit = kv.lookup(table, tokens)
    assert kv.try_admit(table, hit, len(tokens), len(tokens), spare=0)
    loads = kv.take_loads()
    kv.commit(table, tokens, len(tokens))
    return table, hit.num_tokens, loads


def test_a_block_is_copied_out_when_it_is_published_and_once_only():
    kv, pool, store = make_kv()
    table, _, _ = computed(kv, list(range(9)))
    assert pool.num_reads == len(store) == 2
    kv.release(table)
    computed(kv, list(range(9)))
    assert pool.num_reads == 2


def test_what_the_pool_has_dropped_comes_back_into_new_blocks_and_is_published_after_the_step():
    kv, _, _ = make_kv(num_blocks=5)
    tokens = list(range(13))
    first, _, _ = computed(kv, tokens)
    before = list(first.block_ids[:3])
    kv.release(first)
    kv.release(computed(kv, list(range(100, 116)))[0])  # takes every block of the pool
    table = kv.open()
    assert kv.is_ready(table, tokens)
    hit = kv.lookup(table, tokens)
    assert hit.num_tokens == 12
    assert kv.try_admit(table, hit, 13, 13, spare=0)
    loads = kv.take_loads()
    assert [(load.block_id, int.from_bytes(load.data, "little")) for load in loads] == list(zip(table.block_ids, before, strict=False))
    assert kv.take_loads() == []
    assert kv.pool.content(table.block_ids[0]) is None, "a step that fails leaves nothing behind"
    kv.commit(table, tokens, 13)
    assert kv.pool.content(table.block_ids[0]) is not None
    kv.release(table)
    assert kv.lookup(kv.open(), tokens).num_tokens == 12


def test_a_load_fills_the_gap_in_front_of_what_the_pool_still_has():
    kv, _, _ = make_kv(num_blocks=6)
    tokens = list(range(17))
    table, _, _ = computed(kv, tokens)
    lost = table.block_ids[0]
    kept = table.block_ids[1:4]
    kv.pool.forget([lost])
    kv.release(table)
    table, cached, loads = computed(kv, tokens)
    assert cached == 16
    assert [load.block_id for load in loads] == [table.block_ids[0]]
    assert table.block_ids[1:4] == kept


def test_an_admission_that_does_not_fit_leaves_the_loaded_blocks_for_the_next_try():
    kv, _, _ = make_kv(num_blocks=5)
    tokens = list(range(13))
    kv.release(computed(kv, tokens)[0])
    other, _, _ = computed(kv, list(range(100, 116)))
    table = kv.open()
    assert kv.is_ready(table, tokens)
    assert not kv.try_admit(table, kv.lookup(table, tokens), 13, 13, spare=0)
    assert kv.take_loads() == []
    kv.release(other)
    assert kv.try_admit(table, kv.lookup(table, tokens), 13, 13, spare=0)
    assert len(kv.take_loads()) == 3


@pytest.mark.parametrize(("mode", "was_preempted", "loaded"), [("recompute", True, 0), ("recompute", False, 12), ("swap", True, 12)])
def test_the_mode_says_whether_a_preempted_request_is_loaded(mode, was_preempted, loaded):
    kv, _, _ = make_kv(mode=mode)
    tokens = list(range(13))
    kv.release(computed(kv, tokens)[0])
    kv.pool.forget_all()
    assert computed(kv, tokens, was_preempted=was_preempted)[1] == loaded


def test_auto_loads_only_what_costs_less_than_computing():
    kv, _, _ = make_kv()
    tier = kv._tier
    tokens = list(range(13))
    kv.release(computed(kv, tokens)[0])
    for seconds_per_byte, loaded in ((1.0, 0), (1e-9, 12)):
        kv.pool.forget_all()
        tier.cost.seconds_per_byte, tier.cost.seconds_per_token = seconds_per_byte, 0.001
        table, cached, _ = computed(kv, tokens, was_preempted=True)
        assert cached == loaded
        kv.release(table)


def test_swap_loads_however_slow():
    kv, _, _ = make_kv(mode="swap")
    tokens = list(range(13))
    kv.release(computed(kv, tokens)[0])
    kv.pool.forget_all()
    kv._tier.cost.seconds_per_byte, kv._tier.cost.seconds_per_token = 1.0, 0.001
    assert computed(kv, tokens, was_preempted=True)[1] == 12


def test_discarded_blocks_are_not_found_in_the_tier_either():
    kv, _, store = make_kv()
    table, _, _ = computed(kv, list(range(9)))
    kv.discard(table)
    assert len(store) == 0
    assert computed(kv, list(range(9)))[1] == 0


def test_a_reset_empties_the_tier():
    kv, _, store = make_kv()
    kv.release(computed(kv, list(range(9)))[0])
    assert kv.reset_prefix_cache()
    assert len(store) == 0


def test_what_is_on_its_way_out_can_be_read_and_forgotten_before_it_is_written():
    held = threading.Event()

    class SlowStore(HostBlocks):
        def put(self, key, data):
            held.wait(10)
            super().put(key, data)

    store = SlowStore(100 * SIZE, SIZE)
    tier = KVTier(store, Pool().read_block, SIZE)
    tier.keep(key("a"), 1)
    tier.keep(key("b"), 2)
    assert tier.has(key("b"))
    assert tier.load([key("b")]).result(10) == {key("b"): (2).to_bytes(SIZE, "little")}
    held.set()
    tier.flush()
    assert store.has(key("a"))
    tier.forget([key("a")])
    assert not tier.has(key("a"))


def test_a_slow_store_costs_blocks_not_memory():
    held = threading.Event()
    block_bytes = MAX_PENDING_BYTES // 4

    class StuckStore(HostBlocks):
        def put(self, key, data):
            held.wait(10)

    pool = Pool()
    tier = KVTier(StuckStore(block_bytes, block_bytes), pool.read_block, block_bytes)
    for number in range(20):
        tier.keep(key(str(number)), number)
    assert pool.num_reads <= 5
    assert tier.take_stats().lost_blocks["backlog"] >= 15
    held.set()


def test_a_load_ends_where_a_block_is_missing():
    store = HostBlocks(100 * SIZE, SIZE)
    tier = KVTier(store, Pool().read_block, SIZE, make_executor=InlineFutures)
    for number, name in enumerate("abd"):
        tier.keep(key(name), number)
    assert list(tier.load([key(name) for name in "abcd"]).result()) == [key("a"), key("b")]


def test_host_blocks_drop_the_least_recently_used():
    store = HostBlocks(3 * SIZE, SIZE)
    for name in "abc":
        store.put(key(name), b"x" * SIZE)
    store.get(key("a"))
    store.put(key("d"), b"x" * SIZE)
    assert [store.has(key(name)) for name in "abcd"] == [True, False, True, True]


def test_a_cost_is_an_average_of_what_was_measured_and_small_steps_do_not_count():
    cost = LoadCost()
    assert cost.is_load_cheaper(1 << 40, 1), "nothing is known yet"
    cost.observe_step(31, 1.0)
    assert cost.seconds_per_token is None
    cost.observe_step(32, 3.2)
    assert cost.seconds_per_token == pytest.approx(0.1)
    cost = LoadCost()
    cost.observe_step(100, 1.0)
    cost.observe_step(100, 2.0)
    assert cost.seconds_per_token == pytest.approx(0.012)
    cost.observe_load(1000, 1.0)
    assert cost.is_load_cheaper(12, 1)
    assert not cost.is_load_cheaper(13, 1)
    assert cost.seconds_per_byte == pytest.approx(0.001 * FORGIVENESS), "so that it is tried again one day"


def test_host_blocks_count_a_second_put_as_a_use():
    store = HostBlocks(2 * SIZE, SIZE)
    for name in ("a", "b", "a", "c"):
        store.put(key(name), name.encode())
    assert [store.get(key(name)) for name in "abc"] == [b"a", None, b"c"]


def test_the_tier_learns_what_steps_cost():
    kv, _, _ = make_kv()
    kv.observe_step(100, 0.5)
    assert kv._tier.cost.seconds_per_token == 0.005


def test_a_tier_tells_once_what_came_and_went():
    kv, _, _ = make_kv(num_blocks=6, tier_blocks=5)
    tokens = list(range(13))
    kv.release(computed(kv, tokens)[0])
    kv.release(computed(kv, list(range(100, 116)))[0])
    stats = kv.take_tier_stats()
    assert (stats.held_bytes, stats.stored_bytes, stats.loaded_bytes) == (5 * SIZE, 7 * SIZE, 0)
    assert stats.lost_blocks == {"evicted": 2}
    table, num_cached, _ = computed(kv, [*range(100, 116), 1])
    kv.release(table)
    assert num_cached == 16
    stats = kv.take_tier_stats()
    assert (stats.stored_bytes, stats.loaded_bytes, stats.lost_blocks) == (0, 0, {"evicted": 0})


def test_positions_that_came_from_the_tier_are_counted_apart_from_those_in_the_pool():
    kv, _, _ = make_kv(num_blocks=6)
    tokens = list(range(17))
    kv.release(computed(kv, tokens)[0])
    kv.pool.release(kv.pool.take(3))  # drops the blocks that would go first: the last of the prompt
    table, num_cached, loads = computed(kv, tokens)
    assert num_cached == 16
    assert table.num_loaded_tokens == 4 * len(loads) > 0
    assert kv.take_tier_stats().loaded_bytes == len(loads) * SIZE
    kv.release(table)
    assert table.num_loaded_tokens == 0


def test_without_a_tier_there_is_nothing_to_tell():
    assert KVManager(3, 4).take_tier_stats() is None


def test_closing_host_blocks_gives_their_memory_back():
    store = HostBlocks(3 * SIZE, SIZE)
    store.put(key("a"), b"x" * SIZE)
    store.close()
    assert len(store) == 0


def test_what_is_weighed_is_the_blocks_to_load_against_the_tokens_that_they_save():
    kv, _, _ = make_kv(num_blocks=6)
    tokens = list(range(17))
    kv.release(computed(kv, tokens)[0])
    kv.pool.release(kv.pool.take(3))  # the pool keeps the first two blocks
    weighed = []
    kv._tier.is_worth_loading = lambda *args, **kwargs: weighed.append((args, kwargs)) or False
    assert kv.is_ready(kv.open(), tokens)
    assert weighed == [((2, 8), {"was_preempted": False})]


def test_blocks_of_several_groups_come_back_each_into_its_own_place():
    pool, store = Pool(), HostBlocks(100 * SIZE, SIZE)
    groups = Groups(4, (FULL_ATTENTION, AttentionSpan("sliding", 100)))
    kv = KVManager(13, 4, groups=groups, tier=KVTier(store, pool.read_block, SIZE, "swap", InlineFutures))
    tokens = list(range(13))
    table, _, _ = computed(kv, tokens)
    before = list(table.block_ids[:6])
    kv.release(table)
    kv.pool.release(kv.pool.take(12))
    table = kv.open()
    assert kv.is_ready(table, tokens)
    hit = kv.lookup(table, tokens)
    assert kv.try_admit(table, hit, 13, 13, spare=0)
    loads = kv.take_loads()
    assert [(load.block_id, int.from_bytes(load.data, "little")) for load in loads] == list(zip(table.block_ids, before, strict=False))
    assert (table.num_published, table.num_loaded_tokens) == (0, 12)
    kv.commit(table, tokens, 13)
    kv.release(table)
    assert kv.lookup(kv.open(), tokens).num_tokens == 12


@pytest.mark.parametrize("spans", [(FULL_ATTENTION,), (FULL_ATTENTION, AttentionSpan("sliding", 100))])
def test_a_gap_in_the_middle_is_loaded_and_what_lies_before_it_counts_as_published(spans):
    tier = KVTier(HostBlocks(100 * SIZE, SIZE), Pool().read_block, SIZE, "swap", InlineFutures)
    kv = KVManager(20, 4, groups=Groups(4, spans), tier=tier)
    tokens, count = list(range(17)), len(spans)
    table, _, _ = computed(kv, tokens)
    kept, dropped = table.block_ids[: 2 * count], table.block_ids[2 * count : 4 * count]
    kv.release(table)
    kv.pool.forget(dropped)
    table = kv.open()
    assert kv.is_ready(table, tokens)
    assert kv.try_admit(table, kv.lookup(table, tokens), 17, 17, spare=0)
    assert table.block_ids[: 2 * count] == kept
    assert (table.num_published, table.num_loaded_tokens, len(kv.take_loads())) == (2, 8, 2 * count)


def test_a_reset_also_forgets_what_is_on_its_way_out():
    waiting = []

    class Later(InlineFutures):
        def submit(self, work, /, *args, **kwargs):
            waiting.append(lambda: work(*args, **kwargs))

    store = HostBlocks(100 * SIZE, SIZE)
    tier = KVTier(store, Pool().read_block, SIZE, make_executor=Later)
    tier.keep(key("a"), 1)
    tier.clear()
    for write in waiting:
        write()
    assert not tier.has(key("a"))
    assert len(store) == 0


def test_a_tier_that_is_let_go_closes_its_store_and_ends_its_threads():
    made = []

    def executor(name):
        made.append(ThreadPoolExecutor(1, name))
        return made[-1]

    closed = threading.Event()
    store = HostBlocks(100 * SIZE, SIZE)
    store.close = closed.set
    tier = KVTier(store, Pool().read_block, SIZE, make_executor=executor)
    del tier
    assert closed.wait(10)
    assert len(made) == 2
    for one in made:
        with pytest.raises(RuntimeError, match="shutdown"):
            one.submit(len, "")
