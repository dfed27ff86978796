"""What a full block contains, and the blocks that one request holds.

A block is 16 (KVSpec.block_size) token positions of one layer group and is named by its id, a plain int. Id 0 is the null
block: it pads block tables and stands for blocks that are out of sight; it holds nothing and is never given to a request.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple

NULL_BLOCK = 0


class HashedBlock:
    """The content of one full block: its hash, and all that went into the hash.

    `parent` is the content of the block before it (None: it is the first), so a HashedBlock stands for every token up to its
    end. `token_bytes` are its own ids as int32, `extra` is what else changes KV (adapter) or must keep it apart (the
    tenant's salt, in a first block), as CBOR.
    """

    __slots__ = ("block_hash", "extra", "parent", "token_bytes")

    def __init__(self, block_hash: bytes, parent: HashedBlock | None, token_bytes: bytes, extra: bytes) -> None:
        self.block_hash = block_hash
        self.parent = parent
        self.token_bytes = token_bytes
        self.extra = extra

    def is_same(self, other: HashedBlock) -> bool:
        """Whether both stand for the same tokens with the same extra keys from the first token on, whatever their hashes.

        Walks back until the chains meet; a table takes over the contents that it finds, so that they meet at once.
        """
        one: HashedBlock | None = self
        two: HashedBlock | None = other
        while one is not two:
            if one is None or two is None or one.token_bytes != two.token_bytes or one.extra != two.extra:
                return False
            one, two = one.parent, two.parent
        return True


class BlockKey(NamedTuple):
    """What a block holds, by name: which tokens (their hash) in which layer group."""

    block_hash: bytes
    group: int


LoadedBlocks = dict[BlockKey, bytes]


class BlockTable:
    """The blocks of one request, in order of position. Only KVManager changes it.

    `block_ids` holds, for every run of block_size positions, one block of each layer group, group after group; those that no
    later token will see are the null block. `capacity` is how many positions they cover. `hashed` describes the request's
    leading full blocks as far as they are known; it outlives preemption, `block_ids` do not. The first `num_published` runs
    have been entered into the prefix cache, the first `num_dropped[g]` of group g are out of sight.
    `num_loaded_tokens`: of the prefix with which its request was admitted, the positions that came from beyond the pool.
    `first_extra` / `extra`: HashedBlock.extra of the first block and of all others. `loading`: what is being brought in for it
    from beyond the pool, from the moment that it is next in line until it is admitted.
    """

    __slots__ = ("block_ids", "capacity", "extra", "first_extra", "hashed", "loading", "num_dropped", "num_loaded_tokens", "num_published")

    def __init__(self, first_extra: bytes, extra: bytes, num_groups: int = 1) -> None:
        self.block_ids: list[int] = []
        self.capacity = 0
        self.hashed: list[HashedBlock] = []
        self.num_published = 0
        self.num_dropped = [0] * num_groups
        self.num_loaded_tokens = 0
        self.first_extra = first_extra
        self.extra = extra
        self.loading: Future[LoadedBlocks] | None = None

    def clear(self) -> None:
        """Hold no block any more."""
        self.block_ids = []
        self.capacity = 0
        self.num_published = 0
        self.num_dropped = [0] * len(self.num_dropped)
        self.num_loaded_tokens = 0
        self.loading = None

    def __repr__(self) -> str:
        return f"BlockTable({len(self.block_ids)} blocks, {self.num_published} published)"
