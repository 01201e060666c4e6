"""Metrics whose hot path is a plain addition, rendered as OpenMetrics by prometheus-client when scraped.

A process owns one `MetricSet`. A family holds a bounded number of series; label values beyond the bound share one
series labelled "other", so that a client cannot grow memory by inventing names. Not thread-safe by design: each
set belongs to one event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

CONTENT_TYPE: str = CONTENT_TYPE_LATEST

LATENCY_BOUNDS_S: tuple[float, ...] = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip

MAX_SERIES = 1000
_OVERFLOW = "other"


class Counter:
    """A sum that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, n: float = 1) -> None:
        self.value += n


class Gauge:
    """A value that rises and falls."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def set(self, value: float) -> None:
        self.value = value

    def inc(self, n: float = 1) -> None:
        self.value += n

    def dec(self, n: float = 1) -> None:
        self.value -= n


class Histogram:
    """Counts of observations per bucket; `bounds` are upper limits, ascending, without the infinite one."""

    __slots__ = ("bounds", "buckets", "sum")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.buckets)


ChildT = TypeVar("ChildT", Counter, Gauge, Histogram)


class Family(Generic[ChildT]):
    """All series of one metric name. Hold on to a child on a hot path: `labels` is a dictionary look-up."""

    def __init__(self, name: str, help: str, labels: tuple[str, ...], new: Callable[[], ChildT]) -> None:
        self.name = name
        self.help = help
        self.label_names = labels
        self._new: Callable[[], ChildT] = new
        self._series: dict[tuple[str, ...], ChildT] = {}

    def labels(self, *values: str) -> ChildT:
        """The series with these label values, in the order of the family's label names."""
        child = self._series.get(values)
        if child is not None:
            return child
        if len(values) != len(self.label_names):
            raise ValueError(f"Metric {self.name} has labels {self.label_names}, got {values}.")
        if len(self._series) >= MAX_SERIES:
            values = (_OVERFLOW,) * len(values)
        return self._series.setdefault(values, self._new())

    def remove(self, *first_values: str) -> None:
        """Forget every series whose labels begin with these values (their endpoint is gone). Held children go on."""
        length = len(first_values)
        for values in [values for values in self._series if values[:length] == first_values]:
            del self._series[values]

    def collect(self) -> Metric:
        """The family as prometheus-client renders it."""
        metric: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
        kind = type(next(iter(self._series.values()), None) or self._new())
        if kind is Counter:
            metric = CounterMetricFamily(self.name, self.help, labels=self.label_names)
        elif kind is Gauge:
            metric = GaugeMetricFamily(self.name, self.help, labels=self.label_names)
        else:
            metric = HistogramMetricFamily(self.name, self.help, labels=self.label_names)
        for values, child in list(self._series.items()):
            if isinstance(metric, HistogramMetricFamily):
                assert isinstance(child, Histogram)
                metric.add_metric(values, buckets=_cumulative(child), sum_value=child.sum)
            else:
                assert not isinstance(child, Histogram)
                metric.add_metric(values, child.value)
        return metric


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.buckets, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else repr(bound), float(total)))
    return buckets


class MetricSet(Collector):
    """The metrics of one process. Names follow OpenMetrics: a counter `x` is exposed as `x_total`."""

    def __init__(self) -> None:
        self._families: list[Family[Counter] | Family[Gauge] | Family[Histogram]] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def counter(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Family[Counter]:
        family = Family(name, help, labels, Counter)
        self._families.append(family)
        return family

    def gauge(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Family[Gauge]:
        family = Family(name, help, labels, Gauge)
        self._families.append(family)
        return family

    def histogram(
        self, name: str, help: str, labels: tuple[str, ...] = (), bounds: tuple[float, ...] = LATENCY_BOUNDS_S
    ) -> Family[Histogram]:
        family = Family(name, help, labels, lambda: Histogram(bounds))
        self._families.append(family)
        return family

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            yield family.collect()

    def render(self) -> bytes:
        """OpenMetrics text of all families."""
        text: bytes = generate_latest(self._registry)  # type: ignore[no-untyped-call]
        return text


class _Merged(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def merge(parts: Iterable[tuple[dict[str, str], bytes]]) -> bytes:
    """Join the OpenMetrics texts of several processes into one, adding each part's labels to its samples.

    Raises ValueError when a text is not OpenMetrics.
    """
    merged: dict[str, Metric] = {}
    for extra, text in parts:
        for family in text_string_to_metric_families(text.decode()):  # type: ignore[no-untyped-call]
            metric = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            metric.samples.extend(Sample(s.name, {**s.labels, **extra}, *s[2:]) for s in family.samples)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged(list(merged.values())))
    result: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return result
