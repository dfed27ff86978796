"""What a full block contains, and the blocks that one request holds.

A block is 16 (KVSpec.block_size) token positions and is named by its id, a plain int. Id 0 is the null block: it pads
block tables, holds nothing, and is never given to a request.
"""

from __future__ import annotations

from typing import NamedTuple

NULL_BLOCK = 0


class HashedBlock(NamedTuple):
    """The content of one full block: its hash, and all that went into the hash, so that equal means the same KV.

    `parent_hash` stands for every token before it, `token_bytes` are its ids as int32, `extra` is what else changes KV
    (adapter) or must keep it apart (the tenant's salt, in a first block).
    """

    block_hash: bytes
    parent_hash: bytes
    token_bytes: bytes
    extra: bytes


class BlockTable:
    """The blocks of one request, in order of position. Only KVManager changes it.

    `hashed` describes the request's leading full blocks as far as they are known; it outlives preemption, `block_ids`
    do not. The first `num_published` of block_ids have been entered into the prefix cache.
    `first_extra` / `extra`: HashedBlock.extra of the first block and of all others.
    """

    __slots__ = ("block_ids", "extra", "first_extra", "hashed", "num_published")

    def __init__(self, first_extra: bytes, extra: bytes) -> None:
        self.block_ids: list[int] = []
        self.hashed: list[HashedBlock] = []
        self.num_published = 0
        self.first_extra = first_extra
        self.extra = extra

    def __repr__(self) -> str:
        return f"BlockTable({len(self.block_ids)} blocks, {self.num_published} published)"
