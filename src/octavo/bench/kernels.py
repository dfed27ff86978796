"""The native kernels against this machine's peaks, and what they should reach of them.

A kernel is limited by one of two things: reading its operands from memory, or multiplying them. Its share is of the one that it
comes closer to. Bytes count what must be read once (weights as the file stores them, K and V as the pool does); operations count
a product and its sum as two. Weights and K/V come round only after `memory_bytes` of others: outside the caches when that is well
beyond the last one's size.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.backends.registry import open_backend
from octavo.bench.peaks import KINDS, Peaks
from octavo.ops.interface import Batch, Ops, SamplingBatch, Weight
from octavo.params import SamplingParams
from octavo.sampling.plan import SamplingRow, build_sampling_batch
from octavo.specs.kv import KVSpec
from octavo.specs.tensors import Format, RawTensor
from octavo.units import MiB

SIDE = 4096  # of the square matrices: large, so that waking the threads is a small part of a product's time
WIDTH = 2048  # of rows that are not multiplied
FORMATS = (Format.Q4_0, Format.Q4_1, Format.Q4_K, Format.Q5_K, Format.Q6_K, Format.Q8_0, Format.BF16, Format.F16)
FOUR_BITS = (Format.Q4_0, Format.Q4_1, Format.Q4_K)
ROWS = (1, 8, 32, 128)
KV_TYPES = ("f16", "bf16")
KV_HEADS, GROUP, HEAD_DIM, BLOCK = 8, 2, 64, 16  # GROUP: query heads a KV head
VOCAB = 49_152
READ_AT_ONCE = 64 * MiB  # bytes of K/V a call, at most: short calls find a quiet moment

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Work:
    """What one call of a kernel does. `goals`: shares of peaks that it should reach, by the peak's name."""

    op: str
    shape: str
    bytes: float
    operations: float
    kind: str = "f32"
    goals: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Kernel:
    """Something to time. `run(i)` is its i-th call: it uses other memory than the one before where that matters."""

    work: Work
    run: Callable[[int], Any]


@dataclass(frozen=True)
class Goal:
    """What a kernel reached of one peak, and what it should; rates in bytes or operations a second."""

    peak: str  # memory | f32 | bf16 | int8
    reached: float
    possible: float
    share: float
    wanted: float


@dataclass(frozen=True)
class Timing:
    op: str
    shape: str
    seconds: float  # the fastest call
    bytes_per_second: float
    operations_per_second: float
    share: float  # of the peak that it comes closer to
    limit: str  # memory | f32 | bf16 | int8
    goals: tuple[Goal, ...] = ()


def fastest_call(kernel: Kernel, seconds: float) -> float:
    """Return the seconds of the fastest of calls for about `seconds`, at least five after a first that does not count."""
    kernel.run(0)
    until = time.perf_counter() + seconds
    fastest, calls = float("inf"), 0
    while calls < 5 or time.perf_counter() < until:
        calls += 1
        began = time.perf_counter()
        kernel.run(calls)
        fastest = min(fastest, time.perf_counter() - began)
    return fastest


def judge(work: Work, seconds: float, peaks: Peaks) -> Timing:
    """Return what `work` done in `seconds` is beside the peaks."""
    rates = dict.fromkeys(KINDS, work.operations / seconds) | {"memory": work.bytes / seconds}
    shares = {name: rates[name] / peaks.of(name) for name in ("memory", work.kind)}
    limit = max(shares, key=lambda name: shares[name])
    goals = tuple(Goal(name, rates[name], peaks.of(name), rates[name] / peaks.of(name), wanted) for name, wanted in work.goals.items())
    return Timing(work.op, work.shape, seconds, rates["memory"], rates[work.kind], shares[limit], limit, goals)


def kernels(isa: str | None, threads: int | None, memory_bytes: int, only: str = "") -> Iterator[Kernel]:
    """Yield the kernels with `only` in their name, one by one. Operands that must not stay in the caches take `memory_bytes`."""
    backend: Any = open_backend("native", threads=threads, isa=isa)
    for format in FORMATS:
        if only in "linear " + format.label:
            yield from products(backend, format, SIDE, ROWS, memory_bytes)
    for dtype in KV_TYPES:
        for context in (1024, 4096) if only in "attention " + dtype else ():
            yield _attention(backend, dtype, memory_bytes, context, 1)
            yield _attention(backend, dtype, 0, context, 512)
    yield from (kernel for kernel in _row_kernels(backend) if only in kernel.work.op)


def products(backend: Any, format: Format, side: int, rows: Sequence[int], memory_bytes: int = 0) -> Iterator[Kernel]:
    """Yield products of so many rows with matrices [side, side] of one format: as many as fill `memory_bytes`, one at least, by turns."""
    random = np.random.default_rng(0)
    size = format.num_bytes(side * side)
    # As a float of any width: small and normal.
    data = memoryview((random.integers(0, 4, size, np.uint8) | 0x38).tobytes())
    raw = RawTensor("weight", (side, side), format, data)
    weights = [backend.load_matrix(raw) for _ in range(max(1, memory_bytes // size))]
    kind = {"q8": "int8", "bf16": "bf16", "f32": "f32"}[weights[0].matrix.operand]
    for count in rows:
        x = random.standard_normal((count, side), np.float32)
        goals = _goals_of_product(format, count, kind)
        work = Work("linear " + format.label, f"{count} x {side} x {side}", float(size), 2.0 * count * side * side, kind, goals)
        yield Kernel(work, _multiply(backend, x, weights))


def _goals_of_product(format: Format, rows: int, kind: str) -> dict[str, float]:
    if rows == 1 and format in FOUR_BITS:
        return {"memory": 0.85}
    if rows == 128 and format in FOUR_BITS:
        return {"int8": 0.6} | ({"bf16": 0.6} if kind == "bf16" else {})
    if rows == 128 and format is Format.BF16:
        return {"bf16": 0.75}
    return {}


def _attention(backend: Any, dtype: str, memory_bytes: int, context: int, query: int) -> Kernel:
    """Return attention of rows of `query` tokens: as many as READ_AT_ONCE holds, in as many layers, in turn, as `memory_bytes` holds."""
    kv_bytes = context * KV_HEADS * HEAD_DIM * 2 * 2  # K and V, two bytes a value
    blocks = context // BLOCK
    rows = max(1, min(READ_AT_ONCE, memory_bytes) // kv_bytes)
    layers = max(1, memory_bytes // (rows * kv_bytes))
    kv = backend.make_kv_cache(KVSpec(layers, KV_HEADS, HEAD_DIM, dtype, BLOCK), 1 + rows * blocks)
    batch = _batch(rows, blocks, context, query)
    ops: Ops = backend.ops
    values = np.random.default_rng(0).standard_normal((context, KV_HEADS * HEAD_DIM), np.float32)
    for row, layer in itertools.product(range(rows), range(layers)):
        ops.store_kv(values, values, kv, layer, _batch(1, blocks, context, context, 1 + row * blocks))
    q = np.random.default_rng(1).standard_normal((rows * query, KV_HEADS * GROUP * HEAD_DIM), np.float32)
    seen = rows * sum(range(context - query + 1, context + 1))  # positions, over all queries
    shape = f"decode at {context:,}" if query == 1 else f"{query} rows at {context:,}"
    work = Work(
        "attention " + dtype,
        f"{rows} x {shape}" if rows > 1 else shape,
        float(rows * kv_bytes),
        4.0 * seen * KV_HEADS * GROUP * HEAD_DIM,
        "bf16" if dtype == backend.kv_dtype == "bf16" else "f32",  # tiles, or numbers widened in registers
        goals={"memory": 0.8} if query == 1 and context == 4096 else {},
    )
    return Kernel(work, lambda i: ops.attention(q, kv, i % layers, batch, HEAD_DIM**-0.5))


def _batch(rows: int, blocks: int, context: int, query: int, first_block: int = 1) -> Batch:
    positions = np.arange(context - query, context, dtype=np.int32)
    table = first_block + np.arange(rows * blocks, dtype=np.int32).reshape(rows, blocks)
    slots = table[:, positions // BLOCK].astype(np.int64) * BLOCK + positions % BLOCK
    return Batch(
        token_ids=np.zeros(rows * query, np.int32),
        positions=np.tile(positions, rows),
        query_start=np.arange(0, (rows + 1) * query, query, dtype=np.int32),
        context_len=np.full(rows, context, np.int32),
        block_table=table,
        slot_mapping=slots.reshape(-1),
        sample_rows=np.arange(query - 1, rows * query, query, dtype=np.int32),
    )


def _row_kernels(backend: Any) -> Iterator[Kernel]:
    x = np.random.default_rng(0).standard_normal((128, WIDTH), np.float32)
    weight = np.ones(WIDTH, np.float32)
    yield Kernel(Work("rms_norm", f"128 x {WIDTH}", 2.0 * x.nbytes, 4.0 * x.size), lambda i: backend.ops.rms_norm(x, weight, 1e-5))
    yield Kernel(Work("gated silu", f"128 x {WIDTH}", 3.0 * x.nbytes, 20.0 * x.size), lambda i: backend.ops.gated(x, x, "silu"))
    logits = np.random.default_rng(0).standard_normal((8, VOCAB), np.float32)
    for name, params in (
        ("greedy", SamplingParams(temperature=0.0, seed=0)),
        ("top-k 40, top-p 0.95", SamplingParams(temperature=0.8, top_k=40, top_p=0.95, seed=0)),
        ("temperature", SamplingParams(temperature=1.0, seed=0)),
    ):
        how = build_sampling_batch([SamplingRow(params, (), np.ones(1, np.int32), 1, VOCAB) for _ in range(8)])
        work = Work("sample", f"8 x {VOCAB:,}, {name}", float(logits.nbytes), float(logits.size))
        yield Kernel(work, _sample(backend, logits, how))


def _multiply(backend: Any, x: FloatArray, weights: Sequence[Weight]) -> Callable[[int], Any]:
    return lambda i: backend.ops.linear(x, weights[i % len(weights)])


def _sample(backend: Any, logits: FloatArray, how: SamplingBatch) -> Callable[[int], Any]:
    return lambda i: backend.sample(logits, how)
