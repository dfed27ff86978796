"""What this machine can do at most, measured by the native library: reading memory, and multiplying numbers that stay in registers.

A shared machine's peaks move with its neighbours. So they are measured in the same run as what is compared with them, before and
after it, and the higher ones count; Neighbours says how much of the machine others had meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.backends.registry import open_backend
from octavo.units import parse_int

KINDS = ("f32", "bf16", "int8")


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

    def of(self, name: str) -> float:
        """Return a peak by its name: memory in bytes a second, the others in operations a second."""
        return self.read if name == "memory" else self.operations(name)

    def higher(self, other: Peaks) -> Peaks:
        """Return the higher of each peak, of as many threads."""
        return Peaks(self.threads, *(max(getattr(self, name), getattr(other, name)) for name in ("read", *KINDS)))


def measure_peaks(isa: str | None, threads: int | None, read_bytes: int, seconds: float = 0.2) -> Peaks:
    """Return the peaks of so many threads (None: all that this process may use), each the highest of measurements for `seconds`:
    as long as what is compared with it has, to meet as quiet a moment."""
    backend: Any = open_backend("native", threads=threads, isa=isa)
    read = _highest(lambda: backend.peak_read(read_bytes), seconds)
    return Peaks(backend.threads, read, *(_highest(partial(backend.peak_operations, kind), seconds) for kind in KINDS))


def _highest(measure: Callable[[], float], seconds: float) -> float:
    highest, until = measure(), time.perf_counter() + seconds
    while highest > 0 and time.perf_counter() < until:
        highest = max(highest, measure())
    return highest


def last_cache_bytes() -> int:
    """Return the size of this machine's largest cache; 0 where the system does not tell."""
    sizes = [parse_int(path.read_text()) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(sizes, default=0)


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
