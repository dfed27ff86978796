"""`KVManager`: block tables over the pool, and the prefix cache.

A request's life here: open -> lookup -> try_admit -> (try_extend, commit)* -> release; after preemption again from lookup on.
Only full blocks whose KV has been computed are published (`commit` runs after the step), so a failed step leaves nothing
behind, and only full blocks are shared, so no two requests ever write to one block.

Layers that see the same positions form a group (kv/groups.py); a run of block_size positions takes one block for each group.
What no later token of a request sees is released as the request goes on, and a prefix counts as cached where every group
still has what the next token sees.

It does not know requests, budgets or policies. Cost is O(new blocks), never O(tokens), except for a prompt's first hashing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from octavo.kv.block import NULL_BLOCK, BlockTable
from octavo.kv.groups import Groups
from octavo.kv.hashing import BlockHasher, HashScheme, extra_keys, secret_scheme
from octavo.kv.pool import BlockPool, IndexListener
from octavo.units import cdiv


class PrefixHit(NamedTuple):
    """The longest cached prefix: `block_ids` as in BlockTable, the null block where nothing is needed any more."""

    num_tokens: int
    block_ids: list[int]


MISS = PrefixHit(0, [])


class KVManager:
    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        groups: Groups | None = None,
        enable_prefix_caching: bool = True,
        scheme: HashScheme | None = None,
        listener: IndexListener | None = None,
    ) -> None:
        """`num_blocks` counts the null block. `groups` None: one, of full attention. `scheme` None: SHA-256 with a fresh secret."""
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.groups = groups or Groups(block_size)
        self.pool = BlockPool(num_blocks, self.groups.count, listener)
        self._hasher = BlockHasher(block_size, scheme or secret_scheme())

    @property
    def max_tokens(self) -> int:
        """Tokens that one request could hold if it were alone."""
        return self.groups.most_tokens(self.pool.num_usable)

    def open(self, *, adapter: str | None = None, cache_salt: str = "") -> BlockTable:
        """Return an empty table. Requests share blocks only if adapter and cache_salt are equal."""
        return BlockTable(*extra_keys(adapter, cache_salt), num_groups=self.groups.count)

    def lookup(self, table: BlockTable, token_ids: Sequence[int]) -> PrefixHit:
        """Return the longest cached prefix of `token_ids` that leaves at least one token to compute.

        Nothing is held yet: the hit is good until the pool changes.
        """
        if not self.enable_prefix_caching:
            return MISS
        self._hasher.extend(table, token_ids, len(token_ids) // self.block_size)
        limit = (len(token_ids) - 1) // self.block_size
        num_runs, block_ids = self.groups.longest_hit(limit, lambda group, run: self._find(table, group, run))
        return PrefixHit(num_runs * self.block_size, block_ids)

    def try_admit(self, table: BlockTable, hit: PrefixHit, num_tokens: int, num_known_tokens: int, spare: int) -> bool:
        """Give an empty table the blocks of `lookup`'s hit and new ones for `num_tokens` positions in all.

        Returns False, with nothing changed, unless all `num_known_tokens` of the request would fit and `spare` blocks be left.
        """
        cached = [block_id for block_id in hit.block_ids if block_id != NULL_BLOCK]
        num_from_free = sum(1 for block_id in cached if self.pool.ref_count(block_id) == 0)
        num_new = self.groups.count * cdiv(num_tokens, self.block_size) - len(hit.block_ids)
        needed = max(self.groups.blocks_for(num_known_tokens) - len(cached), num_new) + num_from_free
        if needed + spare > self.pool.num_free:
            return False
        self.pool.share(cached)
        table.block_ids = [*hit.block_ids, *self.pool.take(num_new)]
        table.capacity = len(table.block_ids) // self.groups.count * self.block_size
        table.num_published = hit.num_tokens // self.block_size
        table.num_dropped = [first // self.block_size for first in self.groups.first_seen(hit.num_tokens)]
        return True

    def try_extend(self, table: BlockTable, num_tokens: int) -> list[int] | None:
        """Return the blocks added so that the table covers `num_tokens` positions; None, with nothing changed, if too few are free."""
        num_runs = cdiv(num_tokens - table.capacity, self.block_size)
        if num_runs <= 0:
            return []
        count = num_runs * self.groups.count
        if count > self.pool.num_free:
            return None
        added = self.pool.take(count)
        table.block_ids += added
        table.capacity += num_runs * self.block_size
        return added

    def commit(self, table: BlockTable, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """Publish the blocks that the first `num_computed_tokens` of `token_ids` have filled and that are not published yet,
        and give back those that no token from there on sees."""
        num_full = num_computed_tokens // self.block_size
        if self.enable_prefix_caching and num_full > table.num_published:
            self._publish(table, token_ids, num_full)
        if self.groups.forget_positions:
            self._drop_unseen(table, num_computed_tokens)

    def release(self, table: BlockTable) -> None:
        """Give the table's blocks back; those published stay findable until they are taken again. An empty table is no error."""
        self.pool.release([block_id for block_id in table.block_ids if block_id != NULL_BLOCK])
        table.clear()

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

    def _find(self, table: BlockTable, group: int, run: int) -> int:
        """Return a block with the KV of the table's full block number `run` in a group's layers; the null block if none has it."""
        block_id = self.pool.find(table.hashed[run], group)
        if block_id is None:
            return NULL_BLOCK
        content = self.pool.content(block_id)
        if content is not None and content is not table.hashed[run]:  # equal, so this table goes on from the one that is cached
            table.hashed[run] = content
            if run + 1 < len(table.hashed):
                table.hashed[run + 1].parent = content
        return block_id

    def _publish(self, table: BlockTable, token_ids: Sequence[int], num_full: int) -> None:
        self._hasher.extend(table, token_ids, num_full)
        count = self.groups.count
        for run in range(table.num_published, num_full):
            for group in range(count):
                self.pool.publish(table.block_ids[run * count + group], table.hashed[run], group)
        table.num_published = num_full

    def _drop_unseen(self, table: BlockTable, num_computed_tokens: int) -> None:
        count = self.groups.count
        for group, first in enumerate(self.groups.first_seen(num_computed_tokens)):
            end = first // self.block_size
            places = range(table.num_dropped[group] * count + group, end * count, count)
            self.pool.release([table.block_ids[place] for place in places])
            for place in places:
                table.block_ids[place] = NULL_BLOCK
            table.num_dropped[group] = max(end, table.num_dropped[group])
