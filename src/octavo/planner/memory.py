"""How memory is shared out: weights, activations, the KV pool, and what is left alone. Pure arithmetic.

The formulas, with their numbers, are those of the guides that Octavo follows:

    requested       = ceil(total * utilization)
    available       = requested - consumed                     consumed: weights + activations
    bytes_per_block = bytes_per_token * block_size             (KVSpec)
    num_blocks      = available // bytes_per_block
    fits            : ceil(max_model_len / block_size) <= num_blocks - 1        one block is the null block
    max_concurrency = num_blocks / ceil(max_model_len / block_size)
    logged tokens   = int(max_concurrency * max_model_len)

On a CPU `total` is the memory that is *free* at the start, since other programs own the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from octavo.errors import OutOfMemory
from octavo.specs import KVSpec
from octavo.units import cdiv, format_bytes

CPU_UTILIZATION = 0.5  # of free memory, when gpu_memory_utilization is not given
CPU_MAX_NUM_SEQS = 128  # what an engine on a CPU takes where nothing is given, as the next
CPU_MAX_NUM_BATCHED_TOKENS = 512


def requested_bytes(total_bytes: int, utilization: float) -> int:
    return math.ceil(total_bytes * utilization)


def count_blocks(available_bytes: int, bytes_per_block: int) -> int:
    """Return how many blocks fit, the null block included. Raises OutOfMemory when not one would be left to use."""
    if available_bytes - bytes_per_block <= 0:
        raise OutOfMemory(
            f"No available memory for the cache blocks: {format_bytes(available_bytes)} are left for KV and one block takes "
            f"{format_bytes(bytes_per_block)}. Raise --gpu-memory-utilization, free memory, or choose a smaller model."
        )
    return available_bytes // bytes_per_block


def fits(max_model_len: int, block_size: int, num_blocks: int) -> bool:
    """Whether one request of the full length can be held."""
    return cdiv(max_model_len, block_size) <= num_blocks - 1


def largest_fitting_length(block_size: int, num_blocks: int) -> int:
    return (num_blocks - 1) * block_size


def max_concurrency(num_blocks: int, max_model_len: int, block_size: int) -> float:
    return num_blocks / cdiv(max_model_len, block_size)


def logged_tokens(num_blocks: int, max_model_len: int, block_size: int) -> int:
    return int(max_concurrency(num_blocks, max_model_len, block_size) * max_model_len)


@dataclass(frozen=True)
class MemoryLedger:
    """Where the bytes go; `reserve_bytes` is what stays free. The four parts add up to `free_bytes`, what was free at the start."""

    free_bytes: int
    weight_bytes: int
    activation_bytes: int
    kv_bytes: int
    reserve_bytes: int
    num_blocks: int
    block_size: int
    max_model_len: int
    reduced_from: int | None  # the length wished for, when max_model_len had to be lowered to fit

    @property
    def kv_tokens(self) -> int:
        return logged_tokens(self.num_blocks, self.max_model_len, self.block_size)

    @property
    def max_concurrency(self) -> float:
        return max_concurrency(self.num_blocks, self.max_model_len, self.block_size)

    def lines(self) -> list[str]:
        """Return the ledger for the log."""
        lines = [
            f"memory: {format_bytes(self.free_bytes)} free = weights {format_bytes(self.weight_bytes)} + activations "
            f"{format_bytes(self.activation_bytes)} + KV pool {format_bytes(self.kv_bytes)} + reserve {format_bytes(self.reserve_bytes)}"
        ]
        if self.reduced_from is not None:
            lines.append(f"Auto-fit max_model_len: reduced from {self.reduced_from:,} to {self.max_model_len:,}")
        lines.append(
            f"KV cache size: {self.kv_tokens:,} tokens, "
            f"Maximum concurrency for {self.max_model_len:,} tokens per request: {self.max_concurrency:.2f}x"
        )
        return lines


def plan_memory(
    *,
    free_bytes: int,
    weight_bytes: int,
    activation_bytes: int,
    kv_spec: KVSpec,
    max_model_len: int,
    may_shorten: bool,
    max_num_seqs: int,
    utilization: float | None = None,
    kv_cache_memory_bytes: int | None = None,
    num_blocks_override: int | None = None,
) -> MemoryLedger:
    """Return the ledger of an engine on a machine with `free_bytes` free.

    The pool takes what utilization (None: CPU_UTILIZATION) of the free memory leaves after weights and activations, but no
    more than `max_num_seqs` requests of full length could use; `kv_cache_memory_bytes` or `num_blocks_override` set it
    exactly. If one request of `max_model_len` does not fit, the length is lowered where `may_shorten`, else OutOfMemory.
    """
    size = kv_spec.block_size
    if num_blocks_override is not None:
        num_blocks = num_blocks_override
    elif kv_cache_memory_bytes is not None:
        num_blocks = count_blocks(kv_cache_memory_bytes, kv_spec.bytes_per_block)
    else:
        requested = requested_bytes(free_bytes, CPU_UTILIZATION if utilization is None else utilization)
        available = requested - weight_bytes - activation_bytes
        most_useful = max_num_seqs * cdiv(max_model_len, size) + 1
        num_blocks = min(count_blocks(available, kv_spec.bytes_per_block), most_useful)

    reduced_from = None
    if not fits(max_model_len, size, num_blocks):
        longest = largest_fitting_length(size, num_blocks)
        if not may_shorten:
            needed = (cdiv(max_model_len, size) + 1) * kv_spec.bytes_per_block
            raise OutOfMemory(
                f"To serve one request of max_model_len {max_model_len:,} tokens, {format_bytes(needed)} of KV memory are needed; "
                f"{format_bytes(num_blocks * kv_spec.bytes_per_block)} are available. The largest length that fits is {longest:,}: "
                "start with --max-model-len at most that, or raise --gpu-memory-utilization or --kv-cache-memory-bytes."
            )
        reduced_from, max_model_len = max_model_len, longest

    kv_bytes = num_blocks * kv_spec.bytes_per_block
    reserve = free_bytes - weight_bytes - activation_bytes - kv_bytes
    if reserve < 0:
        raise OutOfMemory(
            f"weights {format_bytes(weight_bytes)}, activations {format_bytes(activation_bytes)} and the KV pool "
            f"{format_bytes(kv_bytes)} need {format_bytes(-reserve)} more than the {format_bytes(free_bytes)} that are free. "
            "Lower --kv-cache-memory-bytes or free memory."
        )
    return MemoryLedger(free_bytes, weight_bytes, activation_bytes, kv_bytes, reserve, num_blocks, size, max_model_len, reduced_from)
