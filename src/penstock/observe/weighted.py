"""A histogram whose observations have weights: what happens to many entries at once is observed once, not once an entry."""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Iterator

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString


class WeightedHistogram(Collector):
    """Thread-safe. On the page it looks as any other histogram."""

    def __init__(self, name: str, what: str, buckets: tuple[float, ...], registry: CollectorRegistry) -> None:
        self._name = name
        self._what = what
        self._bounds = buckets
        self._counts = [0] * (len(buckets) + 1)  # of each bucket alone; the last one has no bound
        self._sum = 0.0
        self._lock = threading.Lock()
        registry.register(self)

    def observe(self, value: float, weight: int) -> None:
        """`weight` times this value."""
        at = bisect.bisect_left(self._bounds, value)
        with self._lock:
            self._counts[at] += weight
            self._sum += value * weight

    def observe_between(self, low: float, high: float, weight: int) -> None:
        """`weight` values that lie evenly between `low` and `high`."""
        if weight == 1 or high <= low:
            self.observe((low + high) / 2, weight)
            return
        first, last = bisect.bisect_left(self._bounds, low), bisect.bisect_left(self._bounds, high)
        with self._lock:
            self._sum += (low + high) / 2 * weight
            below = 0
            for at in range(first, last):
                upto = round(weight * (self._bounds[at] - low) / (high - low))
                self._counts[at] += upto - below
                below = upto
            self._counts[last] += weight - below

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            counts, total = list(self._counts), self._sum
        bounds = (*map(floatToGoString, self._bounds), "+Inf")
        yield HistogramMetricFamily(
            self._name,
            self._what,
            buckets=list(zip(bounds, map(float, itertools.accumulate(counts)), strict=True)),
            sum_value=total,
        )
