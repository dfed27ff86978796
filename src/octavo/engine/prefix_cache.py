"""From the cache's settings to the way in which blocks are hashed."""

from __future__ import annotations

from octavo.config import env
from octavo.errors import ConfigError
from octavo.kv.hashing import Digest, HashScheme, cbor_scheme, secret_scheme, sha256


def hash_scheme(algo: str, root: bytes | None = None) -> HashScheme:
    """Return the scheme that --prefix-caching-hash-algo names; `root` replaces the fresh secret of those that are not cbor.

    Raises ConfigError when xxhash is asked for and not installed."""
    is_strong = algo.startswith("sha256")
    digest = sha256 if is_strong else _xxh3_128(algo)
    if algo.endswith("_cbor"):
        return cbor_scheme(digest, is_strong=is_strong, seed=env.hash_seed())
    return secret_scheme(digest, is_strong=is_strong, root=root)


def _xxh3_128(algo: str) -> Digest:
    try:
        from xxhash import xxh3_128_digest
    except ImportError as error:
        raise ConfigError(
            f"prefix_caching_hash_algo is {algo}, which needs the xxhash package: pip install 'octavo[xxhash]', or choose sha256"
        ) from error
    digest: Digest = xxh3_128_digest
    return digest
