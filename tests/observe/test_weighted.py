"""The weighted histogram: an observation of n entries at once is n observations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from penstock.observe.weighted import WeightedHistogram

BOUNDS = (1.0, 2.0, 4.0)


def made() -> tuple[WeightedHistogram, CollectorRegistry]:
    registry = CollectorRegistry()
    return WeightedHistogram("h", "what", BOUNDS, registry), registry


def test_a_weight_counts_as_so_many_values() -> None:
    histogram, registry = made()
    histogram.observe(1.5, 10)
    histogram.observe(9.0, 1)
    histogram.observe_between(0.0, 4.0, 8)
    counts = [registry.get_sample_value("h_bucket", {"le": le}) for le in ("1.0", "2.0", "4.0", "+Inf")]
    assert counts == [2, 2 + 10 + 2, 2 + 10 + 2 + 4, 19]
    assert registry.get_sample_value("h_count") == 19
    assert registry.get_sample_value("h_sum") == 15 + 9 + 16


@given(st.floats(0, 6), st.floats(0, 6), st.integers(1, 1000))
def test_no_value_is_lost_or_counted_below_the_lowest(low: float, high: float, weight: int) -> None:
    low, high = sorted((low, high))
    histogram, registry = made()
    histogram.observe_between(low, high, weight)
    counts = [registry.get_sample_value("h_bucket", {"le": le}) or 0.0 for le in ("1.0", "2.0", "4.0", "+Inf")]
    assert counts == sorted(counts)
    assert counts[-1] == weight
    for bound, count in zip(BOUNDS, counts, strict=False):
        assert low <= bound or count == 0
        assert high > bound or count == weight
