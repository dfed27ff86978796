"""The metrics as whoever asks for them gets them: Prometheus' text, or values. Loaded with the first who asks, for it brings
prometheus_client, which a start can do without."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest

from octavo.metrics.families import Families
from octavo.metrics.process_families import ProcessFamilies
from octavo.metrics.snapshot import Snapshot, snapshot


class Exposition:
    """`families` with their prefix, and CPU and memory of the processes that answer HTTP without it; `process_ids` returns theirs."""

    def __init__(self, families: Families, process_ids: Callable[[], list[int]]) -> None:
        self._families = families
        self._registry = CollectorRegistry()
        self._registry.register(ProcessFamilies(process_ids))
        self._registry.register(families)

    def text(self, is_idle: bool) -> bytes:
        self._families.is_idle = is_idle
        return generate_latest(self._registry)

    def values(self, is_idle: bool) -> Snapshot:
        self._families.is_idle = is_idle
        return snapshot(self._registry)
