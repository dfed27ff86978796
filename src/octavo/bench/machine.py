"""This machine as a Device, by measuring: free memory, the bandwidth of reading it, the rate of the engine's own products.

Short runs, the best of many, on all CPUs that this process may use; on a busy machine they come out low. Products are those
of the native library, on 16-bit and 8-bit weights that lie in the cache, so a compute-bound floor says what its kernels reach.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from octavo.backends.registry import open_backend
from octavo.engine.host_memory import free_memory_bytes
from octavo.ops.interface import Backend, Batch, KVCache, Ops, Tensor, Weight
from octavo.planner.catalogue import Device
from octavo.specs import Format, KVSpec, RawTensor
from octavo.units import MiB

READ_BYTES = 256 * MiB  # of all threads together, far beyond the caches: each slice has left them before it is read again
SLICE_BYTES = 16 * MiB  # of all threads together, timed at once: short, so that some run undisturbed
ROWS, MATRIX = 64, 1024


def measure_machine(seconds: float = 0.3) -> Device:
    """Return this machine with what it reaches in `seconds` for each of three rates. Raises ConfigError without the native library."""
    threads = len(os.sched_getaffinity(0))
    backend = open_backend("native", threads=threads, isa=None)
    return Device(
        name="this machine",
        kind="cpu",
        memory_bytes=free_memory_bytes(),
        bandwidth=_bandwidth(threads, seconds),
        bf16_flops=_products(backend, Format.BF16, seconds),
        fp8_flops=0.0,
        int8_flops=_products(backend, Format.Q8_0, seconds),
        link=0.0,
        reserve_bytes=0,
        source=f"measured now at load {os.getloadavg()[0]:.1f}, {backend.describe()}; memory is what is free",
        date=time.strftime("%Y-%m-%d"),
    )


def _bandwidth(threads: int, seconds: float) -> float:
    """Return bytes read a second by all threads at once, in the best slice."""
    slice_len = SLICE_BYTES // 4 // threads
    parts = [np.ones((READ_BYTES // SLICE_BYTES, slice_len), np.float32) for _ in range(threads)]
    turn = itertools.cycle(range(READ_BYTES // SLICE_BYTES))
    with ThreadPoolExecutor(threads) as pool:

        def read() -> None:
            index = next(turn)
            for _ in pool.map(lambda part: part[index].max(), parts):
                pass

        return threads * slice_len * 4 / _best_seconds(read, seconds)


@dataclass(frozen=True)
class _Product:
    """A model that is one matrix: the eager door of a backend then runs just this product."""

    x: Tensor
    matrix: Weight

    @property
    def weight_bytes(self) -> int:
        return self.matrix.num_bytes

    def forward(self, ops: Ops, batch: Batch, kv: KVCache) -> Tensor:
        return ops.linear(self.x, self.matrix)


def _products(backend: Backend, weights: Format, seconds: float) -> float:
    """Return multiplications and additions a second of ROWS rows with a matrix of `weights`."""
    zeros = memoryview(bytes(weights.num_bytes(MATRIX * MATRIX)))
    matrix = backend.load_matrix(RawTensor("matrix", (MATRIX, MATRIX), weights, zeros))
    nothing = np.zeros(0, np.int32)
    batch = Batch(nothing, nothing, nothing, nothing, nothing.reshape(0, 0), nothing.astype(np.int64), nothing)
    kv = backend.make_kv_cache(KVSpec(1, 1, 64), 2)
    forward = backend.eager(_Product(np.ones((ROWS, MATRIX), np.float32), matrix), kv)
    return 2 * ROWS * MATRIX**2 / _best_seconds(lambda: forward(batch), seconds)


def _best_seconds(work: Callable[[], object], seconds: float) -> float:
    """Return the shortest run of `work`, tried for `seconds` and at least three times."""
    best, runs = float("inf"), 0
    end = time.perf_counter() + seconds
    while runs < 3 or time.perf_counter() < end:
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
        runs += 1
    return best
