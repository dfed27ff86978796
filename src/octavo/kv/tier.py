"""`KVTier`: KV beyond the pool. Full blocks are copied out as they are published, and come back when a prompt or a preempted
request needs what the pool has dropped.

The copy out of the pool is made at once, while the block is held; writing it is a thread's work, and so is reading: a load
is begun when a request is next in line and its blocks are filled before the step that needs them. Nothing depends on the
tier: what is not there, not good or would cost more than computing is computed.

A block's key is its hash, so the hash must be one that nobody can make collide: SHA-256, not xxhash.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Literal, Protocol

from octavo.kv.block import BlockKey, LoadedBlocks
from octavo.kv.cost import LoadCost
from octavo.messages.stats import LossReason, TierStats

MAX_PENDING_BYTES = 64 << 20  # copied out and not written yet; what comes beyond is not kept

PreemptionMode = Literal["auto", "recompute", "swap"]


class BlockStore(Protocol):
    """Where a tier's bytes lie. `get` returns what was put under that very key, or None; all methods may be called from any thread.
    `losses` counts blocks since the start; each reason is counted by one thread only."""

    losses: Counter[LossReason]

    def __len__(self) -> int: ...

    def has(self, key: BlockKey) -> bool: ...

    def get(self, key: BlockKey) -> bytes | None: ...

    def put(self, key: BlockKey, data: bytes) -> None: ...

    def forget(self, keys: Iterable[BlockKey]) -> None: ...

    def clear(self) -> None: ...

    def close(self) -> None: ...


class KVTier:
    def __init__(
        self,
        store: BlockStore,
        read_block: Callable[[int], bytes],
        block_bytes: int,
        preemption_mode: PreemptionMode = "auto",
        make_executor: Callable[[str], Executor] = lambda name: ThreadPoolExecutor(1, name),
    ) -> None:
        """`read_block(id)` copies a block of the pool. `preemption_mode`: whether preempted requests get their blocks back from
        here (swap), compute them (recompute), or what costs less (auto). `make_executor` gives who does the work, in order."""
        self.cost = LoadCost()
        self._store = store
        self._read_block = read_block
        self._block_bytes = block_bytes
        self._preemption_mode = preemption_mode
        self._pending: dict[BlockKey, bytes] = {}  # copied out, not written yet
        self._num_stored = 0  # blocks copied out
        self._num_loaded = 0  # blocks read for requests
        self._backlog_losses: Counter[LossReason] = Counter()
        self._told = TierStats(0, 0, 0, {})  # totals when take_stats was last called
        self._mutex = threading.Lock()
        self._writer = make_executor("octavo-kv-write")
        self._reader = make_executor("octavo-kv-read")
        weakref.finalize(self, _close, store, self._writer, self._reader)

    def has(self, key: BlockKey) -> bool:
        return key in self._pending or self._store.has(key)

    def keep(self, key: BlockKey, block_id: int) -> None:
        """Copy a block of the pool out, unless it is here or too much is waiting to be written."""
        if self.has(key):
            return
        if (len(self._pending) + 1) * self._block_bytes > MAX_PENDING_BYTES:
            self._backlog_losses["backlog"] += 1
            return
        self._num_stored += 1
        self._pending[key] = self._read_block(block_id)
        self._writer.submit(self._write, key)

    def load(self, keys: Sequence[BlockKey]) -> Future[LoadedBlocks]:
        """Begin to bring these blocks in; the result holds those before the first that is not there or no good."""
        return self._reader.submit(self._read, keys)

    def is_worth_loading(self, num_blocks: int, num_tokens: int, *, was_preempted: bool) -> bool:
        """Whether `num_blocks` blocks should be loaded rather than their `num_tokens` tokens computed."""
        if was_preempted and self._preemption_mode != "auto":
            return self._preemption_mode == "swap"
        return self.cost.is_load_cheaper(num_blocks * self._block_bytes, num_tokens)

    def forget(self, keys: Sequence[BlockKey]) -> None:
        """Drop these blocks: what they hold is not to be trusted."""
        with self._mutex:
            for key in keys:
                self._pending.pop(key, None)
            self._store.forget(keys)

    def clear(self) -> None:
        with self._mutex:
            self._pending.clear()
            self._store.clear()

    def take_stats(self) -> TierStats:
        """Return what is held, and what came and went since the last call."""
        before, losses = self._told, self._store.losses + self._backlog_losses
        now = TierStats(0, self._num_stored * self._block_bytes, self._num_loaded * self._block_bytes, dict(losses))
        self._told = now
        return TierStats(
            len(self._store) * self._block_bytes,
            now.stored_bytes - before.stored_bytes,
            now.loaded_bytes - before.loaded_bytes,
            {reason: count - before.lost_blocks.get(reason, 0) for reason, count in now.lost_blocks.items()},
        )

    def flush(self) -> None:
        """Wait until all that was copied out is written."""
        self._writer.submit(lambda: None).result()

    def _write(self, key: BlockKey) -> None:
        with self._mutex:  # so that what is forgotten meanwhile is not written after all
            data = self._pending.get(key)
            if data is not None:
                self._store.put(key, data)
                del self._pending[key]

    def _read(self, keys: Sequence[BlockKey]) -> LoadedBlocks:
        began = time.perf_counter()
        found: LoadedBlocks = {}
        for key in keys:
            data = self._pending.get(key) or self._store.get(key)
            if data is None:
                break
            found[key] = data
        self._num_loaded += len(found)
        if found:
            self.cost.observe_load(len(found) * self._block_bytes, time.perf_counter() - began)
        return found


def _close(store: BlockStore, writer: Executor, reader: Executor) -> None:
    """Close the store once all is written. Does not wait: it may run on one of the two threads."""
    try:
        writer.submit(store.close)
    except RuntimeError:  # the interpreter is ending: it has waited for both
        store.close()
    for executor in (writer, reader):
        executor.shutdown(wait=False)
