"""How long the phases of a process' start take, on time.monotonic(), which all processes of a machine share."""

from __future__ import annotations

import os
import time
from pathlib import Path

from octavo.messages.wire import Phase


class PhaseClock:
    """Phases without gaps: `mark` ends the one that began at the mark before."""

    def __init__(self, started_s: float | None = None) -> None:
        """`started_s` on time.monotonic(); None: now."""
        self._last_s = time.monotonic() if started_s is None else started_s
        self.phases: list[Phase] = []

    def mark(self, name: str) -> None:
        phase = Phase(name, self._last_s, time.monotonic())
        self.phases.append(phase)
        self._last_s = phase.end_s

    def line(self) -> str:
        """Return the phases for the log."""
        total = sum(phase.seconds for phase in self.phases)
        return f"ready in {total:.2f} s: " + ", ".join(f"{phase.name} {phase.seconds:.2f}" for phase in self.phases)


def process_start_s() -> float:
    """Return when this process was started, on time.monotonic() (good to a clock tick, 10 ms)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc(5), counted from the third
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - started_since_boot)
