"""The promises of the position tracker (capture/position.py), under every interleaving that hypothesis finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.position import PositionTracker
from penstock.clock import ManualClock
from penstock.errors import Corruption
from penstock.sources.position import SourcePosition


def at(n: int) -> SourcePosition:
    """Positions that grow with n, over several files."""
    return SourcePosition(f"bin.{n // 10 + 1:06d}", 4 + n % 10)


@given(st.data(), st.integers(1, 12))
def test_durable_is_the_longest_acknowledged_prefix(data: st.DataObject, count: int) -> None:
    tracker = PositionTracker(at(0), ManualClock())
    tickets: list[int] = []
    acknowledged: set[int] = set()
    before = tracker.durable
    while len(acknowledged) < count:
        waiting = [n for n in range(len(tickets)) if n not in acknowledged]
        if len(tickets) < count and (not waiting or data.draw(st.booleans())):
            tickets.append(tracker.appended(at(len(tickets) + 1)))
        else:
            chosen = data.draw(st.sampled_from(waiting))
            acknowledged.add(chosen)
            tracker.acknowledge(tickets[chosen])
        prefix = next((n for n in range(len(tickets)) if n not in acknowledged), len(tickets))
        assert tracker.durable == at(prefix)  # promises 1 and 2
        assert tracker.durable.order >= before.order  # promise 3
        before = tracker.durable
    assert tracker.durable == at(count)  # promise 4
    assert not tracker.pending


def test_idle_traffic_waits_for_what_is_pending_and_for_a_second() -> None:
    clock = ManualClock()
    tracker = PositionTracker(at(0), clock)
    ticket = tracker.appended(at(1))
    tracker.passed(at(2))
    clock.advance(5)
    assert tracker.idle_due() is None  # promise 5: something earlier is not durable
    assert tracker.durable == at(0)
    tracker.acknowledge(ticket)
    assert tracker.durable == at(1)
    assert tracker.idle_due() == at(2)
    tracker.acknowledge(tracker.appended(at(2)))
    assert tracker.idle_due() is None
    tracker.passed(at(3))
    clock.advance(0.5)
    assert tracker.idle_due() is None  # at most one a second
    clock.advance(0.6)
    assert tracker.idle_due() == at(3)


def test_a_source_that_goes_back_is_an_error() -> None:
    tracker = PositionTracker(at(5), ManualClock())
    with pytest.raises(Corruption, match="went back"):
        tracker.appended(at(4))
    tracker.passed(at(4))
    assert tracker.read == at(5)
