"""What the native kernels reach of this machine's peaks: both measured in the same run, since a shared machine's peaks move.

A kernel is limited by one of two things: reading its operands from memory, or multiplying them. Its share is of the one that it
comes closer to. Bytes count what must be read once (weights as the file stores them, K and V as the pool does); operations count
a product and its sum as two. Weights and K/V are larger than the caches together, or come round only after that much else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.backends.registry import open_backend
from octavo.ops.interface import Batch, Ops, SamplingBatch, Weight
from octavo.params import SamplingParams
from octavo.sampling.plan import SamplingRow, build_sampling_batch
from octavo.specs import Format, KVSpec, RawTensor

SIDE = 2048  # of the square matrices
FORMATS = (Format.Q4_0, Format.Q4_1, Format.Q4_K, Format.Q5_K, Format.Q6_K, Format.Q8_0, Format.BF16, Format.F16)
ROWS = (1, 8, 32, 128)
KV_HEADS, GROUP, HEAD_DIM, BLOCK = 8, 2, 64, 16  # GROUP: query heads a KV head
VOCAB = 49_152
_KINDS = ("f32", "bf16", "int8")

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Peaks:
    """Of `threads` threads together: bytes a second from memory, operations a second by kind of number (0: no instruction)."""

    threads: int
    read: float
    f32: float
    bf16: float
    int8: float

    def operations(self, kind: str) -> float:
        """Return the better way to multiply numbers of this kind: bf16 may be widened to f32."""
        return max(self.bf16, self.f32) if kind == "bf16" else float(getattr(self, kind))


@dataclass(frozen=True)
class Kernel:
    """Something to time. `run(i)` is its i-th call: it uses other memory than the one before where that matters."""

    op: str
    shape: str
    run: Callable[[int], Any]
    bytes: float
    operations: float
    kind: str = "f32"


@dataclass(frozen=True)
class Timing:
    op: str
    shape: str
    seconds: float  # the fastest call
    bytes_per_second: float
    operations_per_second: float
    share: float  # of the peak that it comes closer to
    limit: str  # memory | f32 | bf16 | int8


def measure_peaks(isa: str | None, threads: int | None, read_bytes: int) -> Peaks:
    """Return the peaks of so many threads (None: all that this process may use)."""
    backend: Any = open_backend("native", threads=threads, isa=isa)
    return Peaks(backend.threads, backend.peak_read(read_bytes), *(backend.peak_operations(kind) for kind in _KINDS))


def measure(kernel: Kernel, peaks: Peaks, seconds: float) -> Timing:
    """Time calls for about `seconds`, at least five after a first that does not count."""
    kernel.run(0)
    until = time.perf_counter() + seconds
    fastest, calls = float("inf"), 0
    while calls < 5 or time.perf_counter() < until:
        calls += 1
        began = time.perf_counter()
        kernel.run(calls)
        fastest = min(fastest, time.perf_counter() - began)
    rates = {"memory": kernel.bytes / fastest, kernel.kind: kernel.operations / fastest}
    shares = {"memory": rates["memory"] / peaks.read, kernel.kind: rates[kernel.kind] / peaks.operations(kernel.kind)}
    limit = max(shares, key=lambda name: shares[name])
    return Timing(kernel.op, kernel.shape, fastest, rates["memory"], rates[kernel.kind], shares[limit], limit)


def kernels(isa: str | None, threads: int | None, memory_bytes: int, only: str = "") -> Iterator[Kernel]:
    """Yield the kernels with `only` in their name, one by one. Operands that must not stay in the caches take `memory_bytes`."""
    backend: Any = open_backend("native", threads=threads, isa=isa)
    for format in FORMATS:
        if only in "linear " + format.label:
            yield from _products(backend, format, memory_bytes)
    for context in (1024, 4096) if only in "attention" else ():
        yield _attention(backend, f"decode at {context:,}", memory_bytes, context, 1)
        yield _attention(backend, f"512 rows at {context:,}", 0, context, 512)
    yield from (kernel for kernel in _row_kernels(backend) if only in kernel.op)


def _products(backend: Any, format: Format, memory_bytes: int) -> Iterator[Kernel]:
    random = np.random.default_rng(0)
    size = SIDE * SIDE // format.block_values * format.block_bytes
    # As a float of any width: small and normal.
    data = memoryview((random.integers(0, 4, size, np.uint8) | 0x38).tobytes())
    raw = RawTensor("weight", (SIDE, SIDE), format, data)
    weights = [backend.load_matrix(raw) for _ in range(max(2, memory_bytes // size))]
    kind = {"q8": "int8", "bf16": "bf16", "f32": "f32"}[weights[0].matrix.operand]
    for rows in ROWS:
        x = random.standard_normal((rows, SIDE), np.float32)
        yield Kernel(
            "linear " + format.label,
            f"{rows} x {SIDE} x {SIDE}",
            _multiply(backend, x, weights),
            float(size),
            2.0 * rows * SIDE * SIDE,
            kind,
        )


def _attention(backend: Any, shape: str, memory_bytes: int, context: int, query: int) -> Kernel:
    kv_bytes = context * KV_HEADS * HEAD_DIM * 2 * 2  # K and V, two bytes a value
    rows = max(1, memory_bytes // kv_bytes // 4)
    blocks = context // BLOCK
    kv = backend.make_kv_cache(KVSpec(1, KV_HEADS, HEAD_DIM, "f16", BLOCK), 1 + rows * blocks)
    batch = _batch(rows, blocks, context, query)
    ops: Ops = backend.ops
    for row in range(rows):
        filled = _batch(1, blocks, context, context, 1 + row * blocks)
        values = np.random.default_rng(row).standard_normal((context, KV_HEADS * HEAD_DIM), np.float32)
        ops.store_kv(values, values, kv, 0, filled)
    q = np.random.default_rng(0).standard_normal((rows * query, KV_HEADS * GROUP * HEAD_DIM), np.float32)
    seen = rows * sum(range(context - query + 1, context + 1))  # positions, over all queries
    return Kernel(
        "attention",
        f"{rows} x {shape}" if rows > 1 else shape,
        lambda i: ops.attention(q, kv, 0, batch, HEAD_DIM**-0.5),
        float(rows * kv_bytes),
        4.0 * seen * KV_HEADS * GROUP * HEAD_DIM,
    )


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
    x = np.random.default_rng(0).standard_normal((128, SIDE), np.float32)
    weight = np.ones(SIDE, np.float32)
    yield Kernel("rms_norm", f"128 x {SIDE}", lambda i: backend.ops.rms_norm(x, weight, 1e-5), 2.0 * x.nbytes, 4.0 * x.size)
    yield Kernel("gated silu", f"128 x {SIDE}", lambda i: backend.ops.gated(x, x, "silu"), 3.0 * x.nbytes, 20.0 * x.size)
    logits = np.random.default_rng(0).standard_normal((8, VOCAB), np.float32)
    for name, params in (
        ("greedy", SamplingParams(temperature=0.0, seed=0)),
        ("top-k 40, top-p 0.95", SamplingParams(temperature=0.8, top_k=40, top_p=0.95, seed=0)),
        ("temperature", SamplingParams(temperature=1.0, seed=0)),
    ):
        how = build_sampling_batch([SamplingRow(params, (), np.ones(1, np.int32), 1, VOCAB) for _ in range(8)])
        yield Kernel("sample", f"8 x {VOCAB:,}, {name}", _sample(backend, logits, how), float(logits.nbytes), float(logits.size))


def _multiply(backend: Any, x: FloatArray, weights: Sequence[Weight]) -> Callable[[int], Any]:
    return lambda i: backend.ops.linear(x, weights[i % len(weights)])


def _sample(backend: Any, logits: FloatArray, how: SamplingBatch) -> Callable[[int], Any]:
    return lambda i: backend.sample(logits, how)


class Neighbours:
    """How much of this machine others use while we measure: CPU time of all that is not ours, from when this is made."""

    def __init__(self) -> None:
        self._began = self._now()

    def note(self) -> str | None:
        """Return a warning when others took more than 5 % of the CPUs since, else None."""
        busy, stolen, total, own = (now - then for now, then in zip(self._now(), self._began, strict=True))
        others = max(0.0, busy - own) / max(total, 1e-9)
        if others + stolen / max(total, 1e-9) <= 0.05:
            return None
        return (
            f"this machine was busy: others used {others:.0%} of its CPUs, the host took {stolen / max(total, 1e-9):.0%}, "
            f"load average {os.getloadavg()[0]:.1f}; times are too long and peaks too low, each at its own moment"
        )

    @staticmethod
    def _now() -> tuple[float, float, float, float]:
        """Return CPU seconds of all CPUs: busy, stolen by the host, all together, and this process' own."""
        ticks: npt.NDArray[np.float64] = np.array(Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9], np.float64)
        user, nice, system, idle, wait, irq, soft, stolen = ticks / os.sysconf("SC_CLK_TCK")
        times = os.times()
        busy = user + nice + system + irq + soft
        return busy, stolen, busy + idle + wait + stolen, times.user + times.system
