"""`KVManager`: block tables over the pool, and the prefix cache.

A request's life here: open -> lookup -> try_admit -> (try_extend, commit)* -> release; after preemption again from lookup on.
Only full blocks whose KV has been computed are published (`commit` runs after the step), so a failed step leaves nothing
behind, and only full blocks are shared, so no two requests ever write to one block.

It does not know requests, budgets or policies. Cost is O(new blocks), never O(tokens), except for a prompt's first hashing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from octavo.kv.block import BlockTable
from octavo.kv.hashing import BlockHasher, extra_keys
from octavo.kv.pool import BlockPool
from octavo.units import cdiv


class KVManager:
    def __init__(self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool = True, hash_key: bytes | None = None) -> None:
        """`num_blocks` counts the null block. `hash_key` None draws a fresh secret."""
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.pool = BlockPool(num_blocks)
        self._hasher = BlockHasher(block_size, hash_key)

    @property
    def max_tokens(self) -> int:
        """Tokens that one request could hold if it were alone."""
        return self.pool.num_usable * self.block_size

    def open(self, *, adapter: str | None = None, cache_salt: str = "") -> BlockTable:
        """Return an empty table. Requests share blocks only if adapter and cache_salt are equal."""
        return BlockTable(*extra_keys(adapter, cache_salt))

    def lookup(self, table: BlockTable, token_ids: Sequence[int]) -> list[int]:
        """Return the cached blocks of the longest prefix of `token_ids` that leaves at least one token to compute.

        Nothing is held yet: the ids are good until the pool changes.
        """
        if not self.enable_prefix_caching:
            return []
        self._hasher.extend(table, token_ids, len(token_ids) // self.block_size)
        found = []
        for content in islice(table.hashed, (len(token_ids) - 1) // self.block_size):
            block_id = self.pool.find(content)
            if block_id is None:
                break
            found.append(block_id)
        return found

    def try_admit(self, table: BlockTable, cached: Sequence[int], num_tokens: int, num_known_tokens: int, spare: int) -> bool:
        """Give an empty table the `cached` blocks of `lookup` and new ones for `num_tokens` positions in all.

        Returns False, with nothing changed, unless all `num_known_tokens` of the request would fit and `spare` blocks be left.
        """
        num_from_free = sum(1 for block_id in cached if self.pool.ref_count(block_id) == 0)
        needed = cdiv(num_known_tokens, self.block_size) - len(cached) + num_from_free
        if needed + spare > self.pool.num_free:
            return False
        self.pool.share(cached)
        table.block_ids = [*cached, *self.pool.take(cdiv(num_tokens, self.block_size) - len(cached))]
        table.num_published = len(cached)
        return True

    def try_extend(self, table: BlockTable, num_tokens: int) -> list[int] | None:
        """Return the blocks added so that the table covers `num_tokens` positions; None, with nothing changed, if too few are free."""
        count = cdiv(num_tokens, self.block_size) - len(table.block_ids)
        if count > self.pool.num_free:
            return None
        added = self.pool.take(count) if count > 0 else []
        table.block_ids += added
        return added

    def commit(self, table: BlockTable, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """Publish the blocks that the first `num_computed_tokens` of `token_ids` have filled and that are not published yet."""
        num_full = num_computed_tokens // self.block_size
        if not self.enable_prefix_caching or num_full <= table.num_published:
            return
        self._hasher.extend(table, token_ids, num_full)
        for i in range(table.num_published, num_full):
            self.pool.publish(table.block_ids[i], table.hashed[i])
        table.num_published = num_full

    def release(self, table: BlockTable) -> None:
        """Give the table's blocks back; those published stay findable until they are taken again. An empty table is no error."""
        self.pool.release(table.block_ids)
        table.block_ids = []
        table.num_published = 0

    def discard(self, table: BlockTable) -> None:
        """Like release, but nothing that the table held will be found again: its KV may be wrong."""
        self.pool.forget(table.block_ids)
        self.release(table)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks. Returns False, with nothing changed, while any request holds a block."""
        if self.pool.num_free < self.pool.num_usable:
            return False
        self.pool.forget_all()
        return True
