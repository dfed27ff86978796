"""The metrics of a registry as plain values, for programs: what `/metrics` says, without its text format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry


@dataclass(frozen=True)
class Counter:
    name: str
    labels: dict[str, str]
    value: int


@dataclass(frozen=True)
class Gauge:
    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Histogram:
    """`buckets`: how many values were at most the bound, by bound ("+Inf" for all)."""

    name: str
    labels: dict[str, str]
    count: int
    sum: float
    buckets: dict[str, int]


Snapshot = list[Counter | Gauge | Histogram]


def snapshot(registry: CollectorRegistry) -> Snapshot:
    """Return every series of `registry` as it stands now."""
    return [series for family in registry.collect() for series in _series(family)]


def _series(family: Any) -> Snapshot:
    if family.type == "gauge":
        return [Gauge(sample.name, sample.labels, sample.value) for sample in family.samples]
    if family.type == "counter":
        return [Counter(family.name, sample.labels, int(sample.value)) for sample in family.samples]
    by_labels: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        found = by_labels.setdefault(tuple(labels.items()), {"labels": labels, "count": 0, "sum": 0.0, "buckets": {}})
        if sample.name.endswith("_bucket"):
            found["buckets"][sample.labels["le"]] = int(sample.value)
        elif sample.name.endswith("_count"):
            found["count"] = int(sample.value)
        else:
            found["sum"] = sample.value
    return [Histogram(family.name, **found) for found in by_labels.values()]
