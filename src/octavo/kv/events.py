"""What the prefix cache holds, as news for others: the events of vLLM's `--kv-events-config`, in its schema.

Structs are MessagePack arrays whose first item is the event's name. Block hashes are the low 64 bits of the engine's, as
unsigned integers. A block stands in the cache from BlockStored to BlockRemoved or AllBlocksCleared; that it lies there twice
is not told. Token ids are there because the format is made to be indexed by them; a tenant's salt is not.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import msgspec

from octavo.kv.block import HashedBlock

MEDIUM = "GPU"  # vLLM's word for the pool of the device, whatever the device is


class BlockStored(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Consecutive blocks of one chain that can be found from now on; `token_ids` are those of all of them, in order."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = MEDIUM
    lora_name: str | None = None
    extra_keys: list[None] | None = None
    group_idx: int = 0


class BlockRemoved(msgspec.Struct, frozen=True, array_like=True, tag=True):
    block_hashes: list[int]
    medium: str | None = MEDIUM
    group_idx: int = 0


class AllBlocksCleared(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


KVEvent = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, frozen=True, array_like=True):
    """`ts`: seconds since 1970."""

    ts: float
    events: list[KVEvent]
    data_parallel_rank: int | None = None


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One block entered the index."""

    group: int
    content: HashedBlock


class Removed(msgspec.Struct, frozen=True, gc=False):
    """One block left the index."""

    group: int
    content: HashedBlock


class Cleared(msgspec.Struct, frozen=True):
    """The index was emptied."""


Change = Stored | Removed | Cleared


def to_events(changes: Iterable[Change]) -> list[KVEvent]:
    """Return the changes as events, in order; neighbours that belong together share one."""
    events: list[KVEvent] = []
    for change in changes:
        last = events[-1] if events else None
        if isinstance(change, Cleared):
            events.append(AllBlocksCleared())
            continue
        block_hash = event_hash(change.content)
        if isinstance(change, Removed):
            if isinstance(last, BlockRemoved) and last.group_idx == change.group:
                last.block_hashes.append(block_hash)
            else:
                events.append(BlockRemoved([block_hash], group_idx=change.group))
            continue
        parent = change.content.parent
        parent_hash = event_hash(parent) if parent else None
        token_ids = array("i", change.content.token_bytes)
        if isinstance(last, BlockStored) and last.group_idx == change.group and last.block_hashes[-1] == parent_hash:
            last.block_hashes.append(block_hash)
            last.token_ids.extend(token_ids)
        else:
            events.append(BlockStored([block_hash], parent_hash, list(token_ids), len(token_ids), group_idx=change.group))
    return events


def event_hash(content: HashedBlock) -> int:
    """Return a block's hash as events give it."""
    return int.from_bytes(content.block_hash[-8:], "big")
