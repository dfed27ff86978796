"""From the cache's settings to what the KV manager is made with: how blocks are hashed, and where they are kept beyond the pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from octavo import __version__
from octavo.config import env
from octavo.config.schema import CacheConfig
from octavo.errors import ConfigError, OutOfMemory
from octavo.kv.block_files import BlockFiles, KVDirectory
from octavo.kv.hashing import Digest, HashScheme, cbor_scheme, secret_scheme, sha256
from octavo.kv.host_blocks import HostBlocks
from octavo.kv.tier import BlockStore, KVTier, PreemptionMode
from octavo.planner.memory import MemoryLedger
from octavo.specs.kv import KVSpec
from octavo.units import GiB, format_bytes
from octavo.worker.runner import LoadedModel

DEFAULT_DIRECTORY_GIB = 4.0


class PrefixCacheParts(msgspec.Struct, frozen=True):
    """`line`: what the log says of the tier; empty when there is none."""

    scheme: HashScheme
    tier: KVTier | None
    line: str


def make_parts(
    config: CacheConfig, loaded: LoadedModel, kv_spec: KVSpec, path: Path, ledger: MemoryLedger, read_block: Callable[[int], bytes]
) -> PrefixCacheParts:
    """Return what `config` asks for, for the model at `path`. Raises ConfigError, StartupError for the directory, and OutOfMemory
    for more host memory than `ledger` leaves."""
    if not config.has_tier:
        return PrefixCacheParts(hash_scheme(config.prefix_caching_hash_algo), None, "")
    gib = config.kv_offload_gib or DEFAULT_DIRECTORY_GIB
    capacity, block_bytes = int(gib * GiB), kv_spec.bytes_per_block
    root: bytes | None = None
    store: BlockStore
    if config.kv_offload_dir is None:
        if capacity > ledger.reserve_bytes:
            raise OutOfMemory(
                f"kv_offload_gib asks for {format_bytes(capacity)} of host memory; {format_bytes(ledger.reserve_bytes)} are left. "
                "Lower it, or give kv_offload_dir to keep blocks on disk."
            )
        store = HostBlocks(capacity, block_bytes)
        line = f"KV beyond the pool: up to {format_bytes(capacity)} of host memory"
    else:
        directory = KVDirectory(Path(config.kv_offload_dir))
        root = directory.derive_secret(b"block hash root")
        files = BlockFiles(directory, fingerprint(loaded, kv_spec, path), block_bytes, capacity)
        store = files
        line = f"KV beyond the pool: up to {format_bytes(capacity)} on disk, {len(files):,} blocks found there"
    tier = KVTier(store, read_block, block_bytes, cast(PreemptionMode, config.preemption_mode))
    return PrefixCacheParts(hash_scheme(config.prefix_caching_hash_algo, root), tier, line)


def hash_scheme(algo: str, root: bytes | None = None) -> HashScheme:
    """Return the scheme that --prefix-caching-hash-algo names; `root` replaces the fresh secret of those that are not cbor.

    Raises ConfigError when xxhash is asked for and not installed."""
    digest = sha256 if algo.startswith("sha256") else _xxh3_128(algo)
    if algo.endswith("_cbor"):
        return cbor_scheme(digest, seed=env.hash_seed())
    return secret_scheme(digest, root)


def fingerprint(loaded: LoadedModel, kv_spec: KVSpec, path: Path) -> bytes:
    """Return 32 bytes that change with all on which the bytes of a block depend: Octavo's version, backend and ISA, the model's
    numbers, how KV is stored, and the model's files (names, sizes, times of change)."""
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    stated = [(file.name, status.st_size, status.st_mtime_ns) for file in files for status in (file.stat(),)]
    return sha256(repr((__version__, loaded.backend.numerics, loaded.spec, kv_spec, stated)).encode())


def _xxh3_128(algo: str) -> Digest:
    try:
        from xxhash import xxh3_128_digest
    except ImportError as error:
        raise ConfigError(
            f"prefix_caching_hash_algo is {algo}, which needs the xxhash package: pip install 'octavo[xxhash]', or choose sha256"
        ) from error
    digest: Digest = xxh3_128_digest
    return digest
