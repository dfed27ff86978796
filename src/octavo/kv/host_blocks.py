"""`HostBlocks`: a tier in this process's memory. What is least recently used goes when it is full; nothing outlives the process."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable

from octavo.kv.block import BlockKey
from octavo.messages.stats import LossReason


class HostBlocks:
    """See `octavo.kv.tier.BlockStore`."""

    def __init__(self, capacity_bytes: int, block_bytes: int) -> None:
        self._most = capacity_bytes // block_bytes
        self.losses: Counter[LossReason] = Counter()
        self._lock = threading.Lock()
        self._blocks: OrderedDict[BlockKey, bytes] = OrderedDict()  # the least recently used first

    def __len__(self) -> int:
        return len(self._blocks)

    def has(self, key: BlockKey) -> bool:
        return key in self._blocks

    def get(self, key: BlockKey) -> bytes | None:
        with self._lock:
            data = self._blocks.get(key)
            if data is not None:
                self._blocks.move_to_end(key)
            return data

    def put(self, key: BlockKey, data: bytes) -> None:
        with self._lock:
            self._blocks[key] = data
            self._blocks.move_to_end(key)
            while len(self._blocks) > self._most:
                self._blocks.popitem(last=False)
                self.losses["evicted"] += 1

    def forget(self, keys: Iterable[BlockKey]) -> None:
        with self._lock:
            for key in keys:
                self._blocks.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._blocks.clear()

    def close(self) -> None:
        self.clear()
