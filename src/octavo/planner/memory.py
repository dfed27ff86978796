"""How memory is shared out: weights, activations, the KV pool, and what is left alone. Pure arithmetic.

The formulas, with their numbers, are those of the guides that Octavo follows:

    requested       = ceil(total * utilization)
    available       = requested - consumed                     consumed: weights + activations
    bytes_per_block = bytes of the layers that a block holds * block_size      (KVSpec)
    num_blocks      = available // bytes_per_block
    per_request     = sum over layer groups: ceil(max_model_len / block_size), less where a window forgets (KVSpec.blocks_for)
    fits            : per_request <= num_blocks - 1            one block is the null block
    max_concurrency = num_blocks / per_request
    logged tokens   = int(max_concurrency * max_model_len)

On a CPU `total` is the memory that is *free* at the start, since other programs own the rest.
"""

from __future__ import annotations

import math

import msgspec

from octavo.errors import OutOfMemory
from octavo.specs.kv import KVSpec
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


def max_concurrency(num_blocks: int, max_model_len: int, block_size: int) -> float:
    return num_blocks / cdiv(max_model_len, block_size)


class MemoryLedger(msgspec.Struct, frozen=True):
    """Where the bytes go; `reserve_bytes` is what stays free. The four parts add up to `free_bytes`, what was free at the start."""

    free_bytes: int
    weight_bytes: int
    activation_bytes: int
    kv_bytes: int
    reserve_bytes: int
    num_blocks: int
    block_size: int
    max_model_len: int
    blocks_per_request: int  # of full length, in all layer groups
    reduced_from: int | None  # the length wished for, when max_model_len had to be lowered to fit

    @property
    def kv_tokens(self) -> int:
        return int(self.max_concurrency * self.max_model_len)

    @property
    def max_concurrency(self) -> float:
        return self.num_blocks / self.blocks_per_request

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
    max_step_tokens: int = 0,
    utilization: float | None = None,
    kv_cache_memory_bytes: int | None = None,
    num_blocks_override: int | None = None,
) -> MemoryLedger:
    """Return the ledger of an engine on a machine with `free_bytes` free.

    The pool takes what utilization (None: CPU_UTILIZATION) of the free memory leaves after weights and activations, but no
    more than `max_num_seqs` requests of full length could use; `kv_cache_memory_bytes` or `num_blocks_override` set it
    exactly. If one request of `max_model_len` does not fit, the length is lowered where `may_shorten`, else OutOfMemory.
    `max_step_tokens`: positions of one request that may be under way at once, which layers with a window hold beside it.
    """
    if num_blocks_override is not None:
        num_blocks = num_blocks_override
    elif kv_cache_memory_bytes is not None:
        num_blocks = count_blocks(kv_cache_memory_bytes, kv_spec.bytes_per_block)
    else:
        requested = requested_bytes(free_bytes, CPU_UTILIZATION if utilization is None else utilization)
        available = requested - weight_bytes - activation_bytes
        most_useful = max_num_seqs * kv_spec.blocks_for(max_model_len, max_step_tokens) + 1
        num_blocks = min(count_blocks(available, kv_spec.bytes_per_block), most_useful)

    reduced_from = None
    if kv_spec.blocks_for(max_model_len, max_step_tokens) > num_blocks - 1:
        longest = kv_spec.longest_request(num_blocks - 1, max_step_tokens)
        if longest == 0 or not may_shorten:
            needed = (kv_spec.blocks_for(max_model_len, max_step_tokens) + 1) * kv_spec.bytes_per_block
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
    return MemoryLedger(
        free_bytes,
        weight_bytes,
        activation_bytes,
        kv_bytes,
        reserve,
        num_blocks,
        kv_spec.block_size,
        max_model_len,
        kv_spec.blocks_for(max_model_len, max_step_tokens),
        reduced_from,
    )
