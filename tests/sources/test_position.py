"""The tracker's promises, under every interleaving that hypothesis finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.errors import Corruption
from penstock.sources.position import OpenTransaction, PositionTracker, SourcePosition, file_number


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
        assert tracker.durable == at(prefix)  # A and C
        assert tracker.durable.order >= before.order  # D
        before = tracker.durable
    assert tracker.durable == at(count)  # E
    assert not tracker.pending


def test_idle_traffic_waits_for_what_is_pending_and_for_a_second() -> None:
    clock = ManualClock()
    tracker = PositionTracker(at(0), clock)
    ticket = tracker.appended(at(1))
    tracker.passed(at(2))
    clock.advance(5)
    assert tracker.idle_due() is None  # M: something earlier is not durable
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


def test_files_are_ordered_by_number_not_by_name() -> None:
    assert SourcePosition("bin.1000000", 4).order > SourcePosition("bin.999999", 900).order
    assert file_number("mysql-bin.000042") == 42
    assert SourcePosition("", 0).order < SourcePosition("bin.000001", 4).order


def test_json_round_trip_and_bad_json() -> None:
    position = SourcePosition("bin.000001", 1 << 40, "0-1-42", 7, "mariadb:1", 2)
    assert SourcePosition.from_json(position.to_json()) == position
    opened = OpenTransaction(1, "00", "f", 4, 3, 99, 10)
    assert OpenTransaction.from_json(opened.to_json()) == opened
    with pytest.raises(Corruption):
        SourcePosition.from_json(b"[1]")
