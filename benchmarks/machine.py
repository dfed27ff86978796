"""What this machine is, and whether it is quiet enough to be measured on."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path


def facts() -> dict[str, str]:
    lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    cpu = {name.strip(): value.strip() for name, _, value in lines if name}
    flags = set(cpu.get("flags", "").split())
    interesting = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8")
    return {
        "cpu": cpu.get("model name", platform.machine()),
        "family/model": f"{cpu.get('cpu family', '?')}/{cpu.get('model', '?')}",
        "cores": str(len(os.sched_getaffinity(0))),
        "isa": " ".join(name for name in interesting if name in flags),
        "memory": next(
            line.split(":")[1].strip() for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")
        ),
        "kernel": platform.release(),
    }


def busy_share(seconds: float = 2.0) -> float:
    """Return the share of all CPUs that others use now, 0..1, time stolen by the host included."""
    before, total_before = _ticks()
    time.sleep(seconds)
    after, total_after = _ticks()
    return (after - before) / max(1, total_after - total_before)


def wait_until_quiet(limit: float = 0.08, patience_s: float = 60.0) -> float:
    """Return the busy share once it is below `limit`, or what it still is when patience ends."""
    until_s = time.monotonic() + patience_s
    while (share := busy_share()) > limit and time.monotonic() < until_s:
        pass
    return share


def _ticks() -> tuple[int, int]:
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    idle = fields[3] + fields[4]
    return sum(fields[:8]) - idle, sum(fields[:8])
