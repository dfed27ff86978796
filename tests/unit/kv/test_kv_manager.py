from octavo.kv.groups import Groups
from octavo.kv.manager import MISS, KVManager
from octavo.specs.kv import AttentionSpan


def computed(kv, tokens, **keys):
    """A request that has run over `tokens`."""
    table = kv.open(**keys)
    assert kv.try_admit(table, kv.lookup(table, tokens), len(tokens), len(tokens), spare=0)
    kv.commit(table, tokens, len(tokens))
    return table


def hit(kv, tokens, **keys):
    return kv.lookup(kv.open(**keys), tokens).num_tokens


def test_a_full_hit_still_leaves_the_last_token_to_compute():
    kv = KVManager(20, 4)
    kv.release(computed(kv, list(range(12))))
    assert hit(kv, list(range(12))) == 8
    assert hit(kv, list(range(13))) == 12
    assert hit(kv, [*range(7), 99, *range(5)]) == 4


def test_tenants_and_adapters_do_not_see_each_other():
    kv = KVManager(20, 4)
    computed(kv, list(range(9)), cache_salt="a")
    assert hit(kv, list(range(9)), cache_salt="a") == 8
    assert hit(kv, list(range(9))) == hit(kv, list(range(9)), cache_salt="b") == hit(kv, list(range(9)), cache_salt="a", adapter="x") == 0


def test_generated_tokens_are_found_in_the_next_turn():
    kv = KVManager(20, 4)
    table = computed(kv, [1, 2, 3])
    answer = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert kv.try_extend(table, 8) is not None
    kv.commit(table, answer, 8)
    kv.release(table)
    assert hit(kv, [*answer, 10]) == 8


def test_running_requests_share_their_common_blocks():
    kv = KVManager(20, 4)
    one, other = computed(kv, list(range(10))), computed(kv, [*range(8), 50, 51])
    assert one.block_ids[:2] == other.block_ids[:2]
    assert one.block_ids[2] != other.block_ids[2]
    assert kv.pool.num_free == 19 - 4


def test_without_prefix_caching_nothing_is_found():
    kv = KVManager(20, 4, enable_prefix_caching=False)
    kv.release(computed(kv, list(range(12))))
    assert hit(kv, list(range(13))) == 0


def test_what_is_not_computed_yet_is_not_found():
    kv = KVManager(20, 4)
    table = kv.open()
    assert kv.try_admit(table, MISS, 12, 12, spare=0)
    kv.commit(table, list(range(12)), 7)
    assert hit(kv, list(range(13))) == 4


def test_discarded_blocks_are_not_found_again():
    kv = KVManager(20, 4)
    kv.discard(computed(kv, list(range(12))))
    assert hit(kv, list(range(13))) == 0
    assert kv.pool.num_free == 19


def test_a_request_is_admitted_only_if_all_of_it_and_the_spare_blocks_fit():
    kv = KVManager(6, 4)  # five to give
    table = kv.open()
    assert not kv.try_admit(table, MISS, 4, 17, spare=1)
    assert kv.pool.num_free == 5
    assert kv.try_admit(table, MISS, 4, 17, spare=0)
    assert kv.pool.num_free == 4  # blocks come as the chunks do


def test_reset_waits_until_no_request_holds_a_block():
    kv = KVManager(20, 4)
    table = computed(kv, list(range(12)))
    assert not kv.reset_prefix_cache()
    assert hit(kv, list(range(13))) == 12
    kv.release(table)
    assert kv.reset_prefix_cache()
    assert hit(kv, list(range(13))) == 0


def test_a_released_table_holds_nothing():
    kv = KVManager(20, 4)
    table = computed(kv, list(range(12)))
    kv.release(table)
    assert (table.block_ids, table.capacity, table.num_published, table.num_dropped) == ([], 0, 0, [0])


def test_a_table_goes_on_from_the_contents_that_it_finds():
    kv = KVManager(20, 4)
    first = computed(kv, list(range(12)))
    second = kv.open()
    kv.lookup(second, list(range(13)))
    assert all(one is two for one, two in zip(first.hashed, second.hashed, strict=True))
    third = kv.open()
    kv.lookup(third, [*range(8), 99, 99, 99, 99])
    assert third.hashed[2].parent is first.hashed[1]


def test_an_empty_table_covers_nothing():
    table = KVManager(3, 4).open()
    assert (table.block_ids, table.capacity, table.num_published, table.num_dropped) == ([], 0, 0, [0])


def test_with_nothing_beyond_the_pool_there_is_nothing_to_wait_for():
    kv = KVManager(3, 4)
    assert kv.is_ready(kv.open(), [1, 2, 3])
    assert not kv.has_tier


def test_without_prefix_caching_no_block_is_entered_into_the_index():
    kv = KVManager(5, 4, enable_prefix_caching=False)
    table = kv.open()
    assert kv.try_admit(table, kv.lookup(table, [1] * 9), 9, 9, spare=0)
    kv.commit(table, [1] * 9, 9)
    assert [kv.pool.content(block_id) for block_id in table.block_ids] == [None] * 3


def test_a_prefix_ends_at_the_last_run_that_a_window_lacks():
    groups = Groups(4, (AttentionSpan("sliding", 12),))
    for lacking in range(8):
        length, block_ids = groups.longest_hit(8, lambda _, run, lacking=lacking: 0 if run == lacking else 10 + run)
        assert length == (8 if lacking < 5 else lacking), "the last three runs are seen"
        assert block_ids[-3:] == [10 + run for run in range(length - 3, length)]
