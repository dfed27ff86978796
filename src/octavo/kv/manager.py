"""`KVManager`: block tables over the pool, and the prefix cache.

A request's life here: open -> (is_ready)* -> lookup -> try_admit -> (try_extend, commit)* -> release; after preemption again
from is_ready on.
Only full blocks whose KV has been computed are published (`commit` runs after the step), so a failed step leaves nothing
behind, and only full blocks are shared, so no two requests ever write to one block.

Layers that see the same positions form a group (kv/groups.py); a run of block_size positions takes one block for each group.
What no later token of a request sees is released as the request goes on, and a prefix counts as cached where every group
still has what the next token sees.

With a tier (kv/tier.py), what is published is kept there too, and is_ready begins to bring in what the pool lacks of a prefix.
Blocks that come from there are filled by the step that admits the request (take_loads) and published after it, like computed
ones.

It does not know requests, budgets or policies. Cost is O(new blocks), never O(tokens), except for a prompt's first hashing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from octavo.kv.block import NULL_BLOCK, BlockKey, BlockTable
from octavo.kv.groups import Groups
from octavo.kv.hashing import BlockHasher, HashScheme, extra_keys, secret_scheme
from octavo.kv.pool import BlockPool, IndexListener
from octavo.kv.residency import ResidencyMeter
from octavo.kv.tier import KVTier
from octavo.messages.stats import BlockResidency, TierStats
from octavo.messages.step import BlockLoad
from octavo.units import cdiv


class PrefixHit(NamedTuple):
    """The longest cached prefix: `block_ids` as in BlockTable, the null block where nothing is needed any more, TO_LOAD where
    the block comes from the tier."""

    num_tokens: int
    block_ids: list[int]


TO_LOAD = -1
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
        meter: ResidencyMeter | None = None,
        tier: KVTier | None = None,
    ) -> None:
        """`num_blocks` counts the null block. `groups` None: one, of full attention. `scheme` None: SHA-256 with a fresh secret."""
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.groups = groups or Groups(block_size)
        self.pool = BlockPool(num_blocks, self.groups.count, listener, meter)
        self._hasher = BlockHasher(block_size, scheme or secret_scheme())
        self._meter = meter
        self._tier = tier if enable_prefix_caching else None
        self._loads: list[BlockLoad] = []

    @property
    def max_tokens(self) -> int:
        """Tokens that one request could hold if it were alone."""
        return self.groups.most_tokens(self.pool.num_usable)

    def open(self, *, adapter: str | None = None, cache_salt: str = "") -> BlockTable:
        """Return an empty table. Requests share blocks only if adapter and cache_salt are equal."""
        return BlockTable(*extra_keys(adapter, cache_salt), num_groups=self.groups.count)

    def is_ready(self, table: BlockTable, token_ids: Sequence[int], *, was_preempted: bool = False) -> bool:
        """Begin, once, to bring in from the tier what the pool lacks of the table's prefix; return whether lookup need not wait."""
        if self._tier is None:
            return True
        if table.loading is None:
            table.loading = self._tier.load(self._missing(self._tier, table, token_ids, was_preempted))
        return table.loading.done()

    def lookup(self, table: BlockTable, token_ids: Sequence[int]) -> PrefixHit:
        """Return the longest cached prefix of `token_ids` that leaves at least one token to compute.

        Nothing is held yet: the hit is good until the pool changes. Waits for what is_ready has begun.
        """
        if not self.enable_prefix_caching:
            return MISS
        loaded = table.loading.result() if table.loading else {}
        return self._longest_hit(table, token_ids, loaded.__contains__ if loaded else None)

    def try_admit(self, table: BlockTable, hit: PrefixHit, num_tokens: int, num_known_tokens: int, spare: int) -> bool:
        """Give an empty table the blocks of `lookup`'s hit and new ones for `num_tokens` positions in all.

        Returns False, with nothing changed, unless all `num_known_tokens` of the request would fit and `spare` blocks be left.
        """
        cached = [block_id for block_id in hit.block_ids if block_id > NULL_BLOCK]
        num_from_free = sum(1 for block_id in cached if self.pool.ref_count(block_id) == 0)
        places = [place for place, block_id in enumerate(hit.block_ids) if block_id == TO_LOAD]
        num_new = self.groups.count * cdiv(num_tokens, self.block_size) - len(hit.block_ids) + len(places)
        needed = max(self.groups.blocks_for(num_known_tokens) - len(cached), num_new) + num_from_free
        if needed + spare > self.pool.num_free:
            return False
        self.pool.share(cached)
        taken = self.pool.take(num_new)
        table.block_ids = [*hit.block_ids, *taken[len(places) :]]
        table.capacity = len(table.block_ids) // self.groups.count * self.block_size
        table.num_published = (places[0] // self.groups.count) if places else hit.num_tokens // self.block_size
        if places:
            self._load(table, places, taken[: len(places)])
        table.loading = None
        table.num_loaded_tokens = len({place // self.groups.count for place in places}) * self.block_size
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
        if self._tier is not None:
            self._tier.forget([BlockKey(content.block_hash, group) for content in table.hashed for group in range(self.groups.count)])
        self.release(table)

    def take_loads(self) -> list[BlockLoad]:
        """Return, once, what the step that is being planned has to put into blocks."""
        loads, self._loads = self._loads, []
        return loads

    def observe_step(self, num_tokens: int, seconds: float) -> None:
        """Take in what a step's computation took: loading KV is weighed against it."""
        if self._tier is not None:
            self._tier.cost.observe_step(num_tokens, seconds)

    @property
    def has_tier(self) -> bool:
        return self._tier is not None

    def take_tier_stats(self) -> TierStats | None:
        """Return what the tier holds, and what went in and out since the last time; None without a tier."""
        return None if self._tier is None else self._tier.take_stats()

    def take_residency(self) -> BlockResidency | None:
        """Return what was seen of blocks' lives since the last time; None when they are not measured."""
        return None if self._meter is None else self._meter.take_seen()

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks. Returns False, with nothing changed, while any request holds a block."""
        if self.pool.num_free < self.pool.num_usable:
            return False
        self.pool.forget_all()
        if self._tier is not None:
            self._tier.clear()
        return True

    def _longest_hit(self, table: BlockTable, token_ids: Sequence[int], has: Callable[[BlockKey], bool] | None) -> PrefixHit:
        """Return the longest prefix of which every block is in the pool or, as far as `has` says so, beyond it."""
        self._hasher.extend(table, token_ids, len(token_ids) // self.block_size)

        def find(group: int, run: int) -> int:
            block_id = self._find(table, group, run)
            if block_id == NULL_BLOCK and has is not None and has(BlockKey(table.hashed[run].block_hash, group)):
                return TO_LOAD
            return block_id

        num_runs, block_ids = self.groups.longest_hit((len(token_ids) - 1) // self.block_size, find)
        return PrefixHit(num_runs * self.block_size, block_ids)

    def _missing(self, tier: KVTier, table: BlockTable, token_ids: Sequence[int], was_preempted: bool) -> list[BlockKey]:
        """Return the blocks that make the table's prefix longer and are worth loading."""
        hit = self._longest_hit(table, token_ids, tier.has)
        count = self.groups.count
        keys = [
            BlockKey(table.hashed[place // count].block_hash, place % count)
            for place, block_id in enumerate(hit.block_ids)
            if block_id == TO_LOAD
        ]
        if not keys:
            return []
        num_tokens = hit.num_tokens - self._longest_hit(table, token_ids, None).num_tokens
        return keys if tier.is_worth_loading(len(keys), num_tokens, was_preempted=was_preempted) else []

    def _load(self, table: BlockTable, places: Sequence[int], taken: Sequence[int]) -> None:
        """Put blocks into the places of a table that are to be loaded, and have the step fill them."""
        loaded = table.loading.result() if table.loading else {}
        count = self.groups.count
        for place, block_id in zip(places, taken, strict=True):
            table.block_ids[place] = block_id
            self._loads.append(BlockLoad(block_id, loaded[BlockKey(table.hashed[place // count].block_hash, place % count)]))

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
            content = table.hashed[run]
            for group in range(count):
                block_id = table.block_ids[run * count + group]
                if block_id == NULL_BLOCK or self.pool.content(block_id) is not None:
                    continue  # out of sight, or found in the pool behind one that was not
                self.pool.publish(block_id, content, group)
                if self._tier is not None:
                    self._tier.keep(BlockKey(content.block_hash, group), block_id)
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
