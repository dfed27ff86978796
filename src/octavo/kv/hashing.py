"""Block hashes: a chain in which one full block's hash stands for all tokens up to its end.

    hash = BLAKE2b(key, parent hash | token ids as int32 | extra), 16 bytes

The key is secret and fresh for each engine, so nobody outside can aim for a collision; and because the pool compares
whole `HashedBlock`s, a collision could only cost a miss. The parent of a first block is 16 zero bytes: a fixed length
keeps the fields apart. Source: RFC 7693 (BLAKE2), keyed mode.
"""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections.abc import Sequence

from octavo.kv.block import BlockTable, HashedBlock

HASH_BYTES = 16
KEY_BYTES = 32
ROOT = bytes(HASH_BYTES)  # parent of a first block


class BlockHasher:
    def __init__(self, block_size: int, key: bytes | None = None) -> None:
        """`key` None draws a fresh one; at most 64 bytes."""
        self.block_size = block_size
        self._keyed = hashlib.blake2b(key=key or secrets.token_bytes(KEY_BYTES), digest_size=HASH_BYTES)

    def extend(self, table: BlockTable, token_ids: Sequence[int], num_blocks: int) -> None:
        """Hash those of the first `num_blocks` full blocks of `token_ids` that table.hashed lacks, and add them to it."""
        hashed, size = table.hashed, self.block_size
        first = len(hashed)
        if first >= num_blocks:
            return
        data = array("i", token_ids[first * size : num_blocks * size]).tobytes()
        step = len(data) // (num_blocks - first)
        parent_hash = hashed[-1].block_hash if hashed else ROOT
        for start in range(0, len(data), step):
            token_bytes = data[start : start + step]
            extra = table.extra if hashed else table.first_extra
            state = self._keyed.copy()
            state.update(parent_hash + token_bytes + extra)
            block_hash = state.digest()
            hashed.append(HashedBlock(block_hash, parent_hash, token_bytes, extra))
            parent_hash = block_hash


def extra_keys(adapter: str | None, cache_salt: str) -> tuple[bytes, bytes]:
    """Return (extra of the first block, extra of the others): the salt needs to stand in the first alone, for the chain carries it on."""
    every = (adapter or "").encode()
    return len(every).to_bytes(4, "little") + every + cache_salt.encode(), len(every).to_bytes(4, "little") + every
