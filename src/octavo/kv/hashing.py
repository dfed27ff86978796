"""Block hashes: a chain in which one full block's hash stands for all tokens up to its end.

    sha256, xxhash            hash = H(parent hash | token ids as int32 | extra keys)
    sha256_cbor, xxhash_cbor  hash = H(CBOR of [parent hash, [token ids], extra keys])

The parent of a first block is the root: a secret of this start, so that nobody outside can aim for a hash; for the cbor
algorithms H(CBOR of a seed), so that every process with that seed gets the same hashes. Extra keys are null or an array:
[adapter's name], then, in the first block alone, the cache salt: the chain carries it on.

A hash finds a block; whether it is the right one, `HashedBlock.is_same` decides by the tokens. xxhash is quick, but whoever
chooses prompts can make two of them collide: that costs a miss, never a wrong answer.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from struct import Struct

import msgspec

from octavo.kv import cbor
from octavo.kv.block import BlockTable, HashedBlock

Digest = Callable[[bytes], bytes]
ROOT_BYTES = 32


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


class HashScheme(msgspec.Struct, frozen=True):
    """How blocks are hashed."""

    digest: Digest
    root: bytes
    is_cbor: bool


def secret_scheme(digest: Digest = sha256, root: bytes | None = None) -> HashScheme:
    """Return a scheme whose root is `root`, or a fresh secret."""
    return HashScheme(digest, root or secrets.token_bytes(ROOT_BYTES), is_cbor=False)


def cbor_scheme(digest: Digest = sha256, *, seed: str) -> HashScheme:
    """Return a scheme whose hashes are the same wherever `seed` is."""
    return HashScheme(digest, digest(cbor.encode(seed)), is_cbor=True)


class BlockHasher:
    def __init__(self, block_size: int, scheme: HashScheme) -> None:
        self.block_size = block_size
        self.scheme = scheme
        self._pack = Struct(f"{block_size}i").pack  # int32, as this machine orders bytes

    def extend(self, table: BlockTable, token_ids: Sequence[int], num_blocks: int) -> None:
        """Hash those of the first `num_blocks` full blocks of `token_ids` that table.hashed lacks, and add them to it."""
        hashed, size = table.hashed, self.block_size
        digest, is_cbor = self.scheme.digest, self.scheme.is_cbor
        first = len(hashed)
        if first >= num_blocks:
            return
        parent = hashed[-1] if hashed else None
        parent_hash = parent.block_hash if parent else self.scheme.root
        for start in range(first * size, num_blocks * size, size):
            ids = token_ids[start : start + size]
            token_bytes = self._pack(*ids)
            extra = table.extra if parent else table.first_extra
            if is_cbor:
                block_hash = digest(cbor.encode_array((cbor.encode(parent_hash), cbor.encode_integers(ids), extra)))
            else:
                block_hash = digest(parent_hash + token_bytes + extra)
            parent = HashedBlock(block_hash, parent, token_bytes, extra)
            hashed.append(parent)
            parent_hash = block_hash


def extra_keys(adapter: str | None, cache_salt: str) -> tuple[bytes, bytes]:
    """Return (extra keys of the first block, of the others) as CBOR."""
    every: list[cbor.CborValue] = [[adapter]] if adapter else []  # a list in the list: no salt can be taken for an adapter
    first = [*every, cache_salt] if cache_salt else every
    return cbor.encode(first or None), cbor.encode(every or None)
