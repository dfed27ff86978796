"""`Families`: the catalogue's metrics, as prometheus_client wants them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from octavo.metrics.catalogue import METRICS, Metric
from octavo.metrics.figures import Counter, Gauge, Histogram

Labels = tuple[str, ...]
GAUGES_OF_STEPS = ("num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason", "kv_cache_usage_perc")


class Families(Collector):
    """`counters` and `gauges` by metric, then by the values of its own labels; `cache_facts` become labels of cache_config_info."""

    def __init__(
        self,
        counters: dict[str, dict[Labels, Counter]],
        gauges: dict[str, dict[Labels, Gauge]],
        histograms: dict[str, Histogram],
        prefix: str,
        model_name: str,
        cache_facts: dict[str, str],
    ) -> None:
        self.is_idle = True  # the last requests may have been aborted, and that is no step: its gauges are then 0
        self._counters = counters
        self._gauges = gauges
        self._histograms = histograms
        self._prefix = prefix
        self._labels = (model_name, "0")
        self._cache_facts = cache_facts

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            name, labels = self._prefix + metric.name, ("model_name", "engine", *metric.labels)
            if metric.kind == "histogram":
                yield self._histogram(name, metric, labels)
                continue
            family: CounterMetricFamily | GaugeMetricFamily
            if metric.kind == "counter":
                family = CounterMetricFamily(name, metric.help, labels=labels)
                series = {own: counter.value for own, counter in self._counters[metric.name].items()}
            else:
                family = GaugeMetricFamily(name, metric.help, labels=labels)
                series = {own: gauge.value for own, gauge in self._gauges[metric.name].items()}
            for own, number in series.items():
                family.add_metric((*self._labels, *own), 0.0 if self.is_idle and metric.name in GAUGES_OF_STEPS else number)
            yield family
        info = GaugeMetricFamily(
            f"{self._prefix}cache_config_info", "The KV memory's settings, as labels.", labels=tuple(self._cache_facts)
        )
        info.add_metric(tuple(self._cache_facts.values()), 1.0)
        yield info

    def _histogram(self, name: str, metric: Metric, labels: tuple[str, ...]) -> HistogramMetricFamily:
        histogram, buckets, below = self._histograms[metric.name], [], 0.0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            below += count
            buckets.append((floatToGoString(bound), below))  # type: ignore[no-untyped-call]
        family = HistogramMetricFamily(name, metric.help, labels=labels)
        family.add_metric(self._labels, buckets, histogram.sum)
        return family
