"""`BlockPool`: every KV block of the engine, each in exactly one place, and the index by which full ones are found again.

Invariants, after every method:
 1. A block is the null block (id 0), or in use (ref_count > 0), or free (ref_count 0 and in the free list): never two of these.
 2. ref_count is the number of block tables that hold the block.
 3. The index names a block if and only if the block has content: a `HashedBlock` and the layer group whose KV it is. Content is
    set when the block is full and stays until the block is taken again. Free blocks with content are the prefix cache's reserve.
 4. Blocks are taken from the front of the free list. Those without content return to its front, those with content to its
    tail, a request's last block first: so what is evicted is the least recently used, and suffixes go before prefixes.
 5. A method that raises has changed nothing.

It does not know requests, tokens or time. Two blocks may have equal content (both were computed at once); either serves.
A listener hears when the first block with a content enters the index, and when the last one leaves it; a meter, when blocks are taken
and found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from octavo.errors import EngineError
from octavo.kv.block import NULL_BLOCK, HashedBlock
from octavo.kv.free_list import FreeList
from octavo.kv.residency import ResidencyMeter


class IndexListener(Protocol):
    """Who wants to know what can be found: kv/events.py."""

    def stored(self, group: int, content: HashedBlock) -> None: ...

    def removed(self, group: int, content: HashedBlock) -> None: ...

    def cleared(self) -> None: ...


class BlockPool:
    def __init__(
        self, num_blocks: int, num_groups: int = 1, listener: IndexListener | None = None, meter: ResidencyMeter | None = None
    ) -> None:
        """`num_blocks` counts the null block. Raises EngineError below 2."""
        if num_blocks < 2:
            raise EngineError(f"a pool of {num_blocks} blocks has none to give: block 0 is the null block, so it takes at least 2")
        self.num_blocks = num_blocks
        self._free = FreeList(num_blocks)
        self._ref_count = [0] * num_blocks
        self._content: list[HashedBlock | None] = [None] * num_blocks
        self._group = bytearray(num_blocks)  # of the content
        self._index: list[dict[bytes, list[int]]] = [{} for _ in range(num_groups)]  # by group
        self._listener = listener
        self._meter = meter

    @property
    def num_usable(self) -> int:
        return self.num_blocks - 1

    @property
    def num_free(self) -> int:
        """Blocks that `take` could give, cached ones included."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the usable blocks that requests hold, 0..1."""
        return 1.0 - len(self._free) / self.num_usable

    def ref_count(self, block_id: int) -> int:
        return self._ref_count[block_id]

    def content(self, block_id: int) -> HashedBlock | None:
        return self._content[block_id]

    def free_ids(self) -> list[int]:
        """Return the free ids in the order in which they will be taken."""
        return list(self._free)

    def take(self, count: int) -> list[int]:
        """Return `count` blocks with ref_count 1 and no content, evicting what they held. Raises EngineError when fewer are free."""
        if count > len(self._free):
            raise EngineError(f"{count} blocks asked, {len(self._free)} free")
        taken = []
        for _ in range(count):
            block_id = self._free.pop_front()
            self._drop_content(block_id)
            self._ref_count[block_id] = 1
            taken.append(block_id)
        if self._meter is not None:
            self._meter.taken(taken)
        return taken

    def share(self, block_ids: Sequence[int]) -> None:
        """Add one holder to each of these blocks, which have content (found by `find`)."""
        for block_id in block_ids:
            if self._content[block_id] is None:
                raise EngineError(f"block {block_id} holds nothing to share")
        for block_id in block_ids:
            if self._ref_count[block_id] == 0:
                self._free.remove(block_id)
            self._ref_count[block_id] += 1
        if self._meter is not None:
            self._meter.used(block_ids)

    def release(self, block_ids: Sequence[int]) -> None:
        """Take one holder from each of these blocks of a table, last block first. Raises EngineError for a block that is not in use."""
        for block_id in block_ids:
            if block_id == NULL_BLOCK or self._ref_count[block_id] < 1:
                raise EngineError(f"block {block_id} is released but not in use")
        for block_id in reversed(block_ids):
            self._ref_count[block_id] -= 1
            if self._ref_count[block_id] == 0:
                if self._content[block_id] is None:
                    self._free.push_front(block_id)
                else:
                    self._free.push_tail(block_id)

    def publish(self, block_id: int, content: HashedBlock, group: int = 0) -> None:
        """Enter a full block that is in use into the index. Raises EngineError when it is free or has content already."""
        if self._ref_count[block_id] < 1 or self._content[block_id] is not None:
            raise EngineError(f"block {block_id} cannot be published: it is free or was published before")
        self._content[block_id] = content
        self._group[block_id] = group
        holders = self._index[group].setdefault(content.block_hash, [])
        holders.append(block_id)
        if self._listener is not None and len(holders) == 1:
            self._listener.stored(group, content)

    def find(self, content: HashedBlock, group: int = 0) -> int | None:
        """Return a block that holds the KV of exactly `content` (compared, not only by its hash) in `group`'s layers, or None."""
        for block_id in self._index[group].get(content.block_hash, ()):
            found = self._content[block_id]
            if found is not None and found.is_same(content):
                return block_id
        return None

    def forget(self, block_ids: Iterable[int]) -> None:
        """Make these blocks unfindable: what they hold is not to be trusted. Their holders keep them."""
        for block_id in block_ids:
            self._drop_content(block_id)

    def forget_all(self) -> None:
        """Empty the index. Holders keep their blocks."""
        for index in self._index:
            index.clear()
        self._content = [None] * self.num_blocks
        if self._listener is not None:
            self._listener.cleared()
        if self._meter is not None:
            self._meter.clear()

    def _drop_content(self, block_id: int) -> None:
        content = self._content[block_id]
        if content is None:
            return
        self._content[block_id] = None
        group = self._group[block_id]
        index = self._index[group]
        holders = index[content.block_hash]
        holders.remove(block_id)
        if not holders:
            del index[content.block_hash]
            if self._listener is not None:
                self._listener.removed(group, content)
