"""This machine as a Device, by measuring: free memory, the bandwidth of reading it, the rate of the engine's own products.

Short runs, the fastest of many, on all CPUs that this process may use; on a busy machine they come out low. Products are those
of the native library, on 16-bit and 8-bit weights that lie in the cache, so a compute-bound floor says what its kernels reach.
"""

from __future__ import annotations

import os
import time
from typing import Any

from octavo.backends.registry import open_backend
from octavo.bench.kernels import fastest_call, products
from octavo.engine.host_memory import free_memory_bytes
from octavo.planner.catalogue import Device
from octavo.specs.tensors import Format
from octavo.units import MiB

READ_BYTES = 512 * MiB  # beyond the last cache of most machines
ROWS, SIDE = 256, 1024


def measure_machine(seconds: float = 0.3) -> Device:
    """Return this machine; products are tried for `seconds` of each format. Raises ConfigError without the native library."""
    backend: Any = open_backend("native")
    return Device(
        name="this machine",
        kind="cpu",
        memory_bytes=free_memory_bytes(),
        bandwidth=backend.peak_read(READ_BYTES),
        bf16_flops=_product_rate(backend, Format.BF16, seconds),
        fp8_flops=0.0,
        int8_flops=_product_rate(backend, Format.Q8_0, seconds),
        link=0.0,
        reserve_bytes=0,
        source=f"measured now at load {os.getloadavg()[0]:.1f}, {backend.describe()}; memory is what is free",
        date=time.strftime("%Y-%m-%d"),
    )


def _product_rate(backend: Any, weights: Format, seconds: float) -> float:
    """Return multiplications and additions a second of ROWS rows with a matrix of `weights` that stays in the caches."""
    (kernel,) = products(backend, weights, SIDE, [ROWS])
    return kernel.work.operations / fastest_call(kernel, seconds)
