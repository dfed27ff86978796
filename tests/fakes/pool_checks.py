"""The block pool's invariants, recomputed the slow and obvious way."""

from collections import Counter
from collections.abc import Iterable

from octavo.kv.block import BlockTable
from octavo.kv.pool import BlockPool


def check_pool(pool: BlockPool, tables: Iterable[BlockTable]) -> None:
    """Assert that every block is in exactly one place, given all live tables."""
    tables = list(tables)
    free = pool.free_ids()
    assert len(set(free)) == len(free) == pool.num_free
    holders = Counter(block_id for table in tables for block_id in table.block_ids)
    assert 0 not in holders
    assert 0 not in free
    for block_id in range(1, pool.num_blocks):
        assert pool.ref_count(block_id) == holders[block_id]
        assert (block_id in set(free)) == (holders[block_id] == 0)
    for table in tables:
        assert len(set(table.block_ids)) == len(table.block_ids)
        for block_id in table.block_ids[table.num_published :]:
            assert holders[block_id] == 1, "a block that is not full is shared"
            assert pool.content(block_id) is None
    indexed = [block_id for ids in pool._index.values() for block_id in ids]
    assert sorted(indexed) == [block_id for block_id in range(pool.num_blocks) if pool.content(block_id) is not None]
    for block_hash, ids in pool._index.items():
        assert ids
        assert all(pool.content(block_id).block_hash == block_hash for block_id in ids)
