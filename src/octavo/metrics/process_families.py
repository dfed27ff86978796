"""CPU, memory and descriptors of the processes that answer HTTP, under the names that every Prometheus client gives its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

LEAST = ("process_start_time_seconds", "process_max_fds")  # of these the least is shown, of the others the sum


class ProcessFamilies(Collector):
    """`process_ids`: returns the processes; none for this one alone. One that has ended counts nothing."""

    def __init__(self, process_ids: Callable[[], list[int]]) -> None:
        self._process_ids = process_ids

    def collect(self) -> Iterable[Family]:
        merged: dict[str, Family] = {}
        for process_id in self._process_ids() or [os.getpid()]:
            for family in ProcessCollector(pid=partial(int, process_id), registry=CollectorRegistry()).collect():
                if family.name not in merged:
                    merged[family.name] = family
                    continue
                before, after = merged[family.name].samples[0], family.samples[0]
                value = min(before.value, after.value) if before.name in LEAST else before.value + after.value
                merged[family.name].samples[0] = before._replace(value=value)
        return merged.values()
