"""Random inputs: weights of every format, steps over paged KV memory, sampling parameters."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from octavo.backends.native.ops import NativeOps
from octavo.backends.reference.ops import ReferenceOps
from octavo.ops.interface import Batch, SamplingBatch, concat_start
from octavo.specs.kv import FULL_ATTENTION, AttentionSpan
from octavo.specs.tensors import Format, RawTensor

SCALE_OFFSETS = {  # of the f16 scales and minima in a block
    Format.Q4_0: (0,),
    Format.Q4_1: (0, 2),
    Format.Q5_0: (0,),
    Format.Q5_1: (0, 2),
    Format.Q8_0: (0,),
    Format.Q4_K: (0, 2),
    Format.Q5_K: (0, 2),
    Format.Q6_K: (208,),
}


def raw_matrix(format: Format, n: int, k: int, seed: int = 0) -> RawTensor:
    """Return random valid blocks: any quants, scales around 0.02 of either sign."""
    random = np.random.default_rng(seed)
    if format in SCALE_OFFSETS:
        blocks = random.integers(0, 256, (n * k // format.block_values, format.block_bytes), dtype=np.uint8)
        for offset in SCALE_OFFSETS[format]:
            scales = random.uniform(0.005, 0.04, len(blocks)) * random.choice([-1, 1], len(blocks))
            blocks[:, offset : offset + 2] = scales.astype("<f2").view(np.uint8).reshape(-1, 2)
        data = blocks.tobytes()
    else:
        values = random.standard_normal((n, k), dtype=np.float32)
        data = {
            Format.F32: values.tobytes,
            Format.F16: lambda: values.astype("<f2").tobytes(),
            Format.BF16: lambda: (values.view(np.uint32) >> 16).astype("<u2").tobytes(),
        }[format]()
    return RawTensor("w", (n, k), format, memoryview(data))


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def ops_of(backend):
    """Return the backend's eager verbs."""
    return NativeOps(backend._device) if backend.name == "native" else ReferenceOps()


def span(window: int | None) -> AttentionSpan:
    """Return what a token sees: everything, a window, or (negative) its chunk."""
    if window is None:
        return FULL_ATTENTION
    return AttentionSpan("sliding", window) if window > 0 else AttentionSpan("chunked", -window)


def step(rows: list[tuple[int, int]], block_size: int = 16, seed: int = 0, num_blocks: int = 256, num_groups: int = 1) -> Batch:
    """Return a batch of rows (start, num_tokens) with block ids in random order; every token is sampled. The block table of
    row r is the same for every step of the same seed, block size and number of rows."""
    random = np.random.default_rng(seed)
    width = num_blocks // (len(rows) * num_groups)
    ids = 1 + random.permutation(num_blocks - 1)[: width * len(rows) * num_groups]
    table = np.resize(ids, (len(rows), num_groups, width)).astype(np.int32)
    positions = np.concatenate([np.arange(start, start + count, dtype=np.int32) for start, count in rows])
    row_of = np.repeat(np.arange(len(rows)), [count for _, count in rows])
    slots = table[row_of, :, positions // block_size].astype(np.int64).T * block_size + positions % block_size
    return Batch(
        token_ids=random.integers(0, 60, len(positions)).astype(np.int32),
        positions=positions,
        query_start=concat_start([count for _, count in rows]),
        context_len=np.array([start + count for start, count in rows], np.int32),
        block_table=table.reshape(len(rows), -1),
        slot_mapping=slots.reshape(-1),
        sample_rows=np.arange(len(positions), dtype=np.int32),
    )


def whole_rows(lengths: list[int], seed: int = 0) -> Batch:
    """Return a batch of whole rows that use no KV memory; every token is sampled."""
    starts = concat_start(lengths)
    count = int(starts[-1])
    positions = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    random = np.random.default_rng(seed)
    return Batch(
        token_ids=random.integers(0, 60, count).astype(np.int32),
        positions=positions,
        query_start=starts,
        context_len=np.array(lengths, np.int32),
        block_table=np.zeros((len(lengths), 0), np.int32),
        slot_mapping=np.zeros(count, np.int64),
        sample_rows=np.arange(count, dtype=np.int32),
        token_types=random.integers(0, 2, count).astype(np.int32),
    )


def one_row(batch: Batch, row: int, start: int, count: int, block_size: int = 16) -> Batch:
    """Return the step of row `row` of `batch` alone, positions start .. start + count - 1."""
    positions = np.arange(start, start + count, dtype=np.int32)
    table = batch.block_table[row : row + 1]
    return Batch(
        token_ids=np.zeros(count, np.int32),
        positions=positions,
        query_start=np.array([0, count], np.int32),
        context_len=np.array([start + count], np.int32),
        block_table=table,
        slot_mapping=table[0, positions // block_size].astype(np.int64) * block_size + positions % block_size,
        sample_rows=np.arange(count, dtype=np.int32),
    )


def fill(ops, kv, layer: int, batch: Batch, seed: int = 0) -> None:
    """Poison the whole layer with NaN, then write K and V of every position of the batch's rows."""
    width = kv.spec.num_kv_heads * kv.spec.head_dim
    block_size = kv.spec.block_size
    num_slots = kv.num_blocks * block_size
    poison = np.full((num_slots, width), np.nan, np.float32)
    everywhere = one_row(batch, 0, 0, 1, block_size)
    everywhere = replace(everywhere, slot_mapping=np.arange(num_slots, dtype=np.int64))
    ops.store_kv(poison, poison, kv, layer, everywhere)
    for row, length in enumerate(batch.context_len.tolist()):
        k, v = floats(2, length, width, seed=seed + row)
        ops.store_kv(k, v, kv, layer, one_row(batch, row, 0, length, block_size))


def sampling(num_rows: int, vocab_size: int, seed: int) -> SamplingBatch:
    """Return a random mix of parameters, neutral ones among them."""
    random = np.random.default_rng(seed)

    def some(values, dtype):
        return random.choice(values, num_rows).astype(dtype)

    def lists(limit):  # of fewer than `limit` ids
        lengths = random.integers(0, limit, num_rows)
        ids = [np.sort(random.choice(vocab_size, length, replace=False)) for length in lengths]
        return concat_start(lengths.tolist()), np.concatenate(ids).astype(np.int32)

    banned_start, banned_ids = lists(min(4, vocab_size))
    bias_start, bias_ids = lists(min(6, vocab_size))
    seen_start, seen_ids = lists(min(30, vocab_size))
    shares = random.choice([0.02, 0.7, 1], random.integers(1, num_rows + 1))
    masks = random.random((len(shares), vocab_size)) < shares[:, None]
    masks[:, random.integers(vocab_size)] = True  # something is left to draw
    bits = np.packbits(masks, axis=1, bitorder="little")
    allowed = np.zeros((len(masks), -(-vocab_size // 32) * 4), np.uint8)
    allowed[:, : bits.shape[1]] = bits
    return SamplingBatch(
        temperature=some([0, 0.3, 0.7, 1, 1.5], np.float32),
        top_k=some([0, -1, 1, 2, 7, 40, 300, vocab_size], np.int32),
        top_p=some([1, 1, 0.95, 0.6, 0.1, 1e-4], np.float32),
        min_p=some([0, 0, 0.02, 0.3, 1], np.float32),
        repetition_penalty=some([1, 1.3, 0.8], np.float32),
        presence_penalty=some([0, 0.7, -0.4], np.float32),
        frequency_penalty=some([0, 0.2, -0.3], np.float32),
        seed=random.integers(0, 2**64, num_rows, dtype=np.uint64),
        position=random.integers(0, 5000, num_rows).astype(np.uint64),
        num_logprobs=some([-1, 0, 1, 5, 20], np.int32),
        typical_p=some([1, 1, 1, 0.9, 0.3, 1e-3], np.float32),
        top_n_sigma=some([0, 0, 0, 0.5, 1, 3], np.float32),
        xtc_probability=some([0, 0, 0, 0.5, 1], np.float32),
        xtc_threshold=some([0, 0.05, 0.1, 0.4], np.float32),
        wants_processed=some([False, False, True], np.bool_),
        given=np.where(random.random(num_rows) < 0.1, random.integers(0, vocab_size, num_rows), -1).astype(np.int32),
        banned_start=banned_start,
        banned_ids=banned_ids,
        bias_start=bias_start,
        bias_ids=bias_ids,
        bias_values=random.uniform(-5, 5, len(bias_ids)).astype(np.float32),
        seen_start=seen_start,
        seen_ids=seen_ids,
        seen_counts=random.integers(0, 4, len(seen_ids)).astype(np.int32),
        allowed_row=random.integers(-1, len(masks), num_rows).astype(np.int32),
        allowed=allowed.view(np.int32),
    )
