"""The block pool's invariants, recomputed the slow and obvious way."""

from collections import Counter
from collections.abc import Iterable

from octavo.kv.block import NULL_BLOCK, BlockTable
from octavo.kv.pool import BlockPool


def check_pool(pool: BlockPool, tables: Iterable[BlockTable]) -> None:
    """Assert that every block is in exactly one place, given all live tables."""
    tables = list(tables)
    free = pool.free_ids()
    free_set = set(free)
    assert len(free_set) == len(free) == pool.num_free
    held = [[block_id for block_id in table.block_ids if block_id != NULL_BLOCK] for table in tables]
    holders = Counter(block_id for block_ids in held for block_id in block_ids)
    assert 0 not in free_set
    for block_id in range(1, pool.num_blocks):
        assert pool.ref_count(block_id) == holders[block_id]
        assert (block_id in free_set) == (holders[block_id] == 0)
    for block_ids in held:
        assert len(set(block_ids)) == len(block_ids)
        for block_id in block_ids:
            assert pool.content(block_id) is not None or holders[block_id] == 1, "a block that is not full is shared"
    indexed = [block_id for index in pool._index for ids in index.values() for block_id in ids]
    assert sorted(indexed) == [block_id for block_id in range(pool.num_blocks) if pool.content(block_id) is not None]
    for group, index in enumerate(pool._index):
        for block_hash, ids in index.items():
            assert ids
            assert all(pool.content(block_id).block_hash == block_hash and pool._group[block_id] == group for block_id in ids)
