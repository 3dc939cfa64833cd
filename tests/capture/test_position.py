"""The promises of the position tracker (capture/position.py), under every interleaving that hypothesis finds, and the
six points that the specification asks to verify (002, section 5).
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capture.position import PositionTracker
from penstock.clock import ManualClock
from penstock.errors import Corruption
from penstock.sources.position import SourcePosition
from tests.support.budget import scaled


def at(n: int) -> SourcePosition:
    """Positions that grow with n, over several files."""
    return SourcePosition(f"bin.{n // 10 + 1:06d}", 4 + n % 10, turn=n // 10)


# -- the six points of the specification -----------------------------------------------------------------------------


def test_point_1_a_commit_with_rows_moves_the_snapshot_one_without_moves_both() -> None:
    clock = ManualClock()
    tracker = PositionTracker(at(0), clock)
    ticket = tracker.appended(at(1))
    assert (tracker.snapshot, tracker.pending_snapshot) == (at(1), at(0))
    tracker.acknowledge(ticket)
    clock.advance(2)
    tracker.passed(at(2))
    tracker.acknowledge(tracker.appended(tracker.idle_due()))
    assert (tracker.snapshot, tracker.pending_snapshot) == (at(2), at(2))


def test_point_2_rows_carry_the_end_of_the_commit_before_them() -> None:
    tracker = PositionTracker(at(0), ManualClock())
    carried = []
    for n in (1, 2, 3):
        carried.append(tracker.snapshot)
        tracker.appended(at(n))
    assert carried == [at(0), at(1), at(2)]
    assert [one["restart"]["pos"] for one in tracker.status()["unfinished"]] == [at(n).pos for n in (0, 1, 2)]


def test_point_3_a_completion_saves_the_position_of_its_own_frame() -> None:
    tracker = PositionTracker(at(0), ManualClock())
    first, second = tracker.appended(at(1)), tracker.appended(at(2))
    tracker.appended(at(3))
    tracker.acknowledge(first)
    assert tracker.pending_snapshot == at(1)  # not the snapshot, which is at(3) by now
    tracker.acknowledge(second)
    assert tracker.pending_snapshot == at(2)


def test_point_4_traffic_without_rows_is_saved_from_the_snapshot() -> None:
    clock = ManualClock()
    tracker = PositionTracker(at(0), clock)
    tracker.passed(at(5))
    assert tracker.idle_due() is None  # at most one a second
    clock.advance(1.1)
    assert tracker.idle_due() == at(5) == tracker.snapshot
    tracker.acknowledge(tracker.appended(at(5)))
    assert tracker.pending_snapshot == at(5)
    assert tracker.idle_due() is None


def test_point_5_nothing_is_pending_once_all_is_acknowledged() -> None:
    tracker = PositionTracker(at(0), ManualClock())
    tickets = [tracker.appended(at(n)) for n in (1, 2, 3)]
    for ticket in (tickets[2], tickets[0]):
        tracker.acknowledge(ticket)
        assert tracker.pending
    tracker.acknowledge(tickets[1])
    assert not tracker.pending and tracker.pending_snapshot == at(3)


def test_point_6_other_commits_do_not_pass_what_is_pending() -> None:
    clock = ManualClock()
    tracker = PositionTracker(at(0), clock)
    ticket = tracker.appended(at(1))
    tracker.passed(at(2))
    clock.advance(5)
    assert tracker.idle_due() is None
    assert tracker.pending_snapshot == at(0)
    tracker.acknowledge(ticket)
    assert tracker.pending_snapshot == at(1)  # and not at(2), which is only remembered
    assert tracker.idle_due() == at(2)


# -- every interleaving ----------------------------------------------------------------------------------------------

steps = st.lists(
    st.sampled_from(
        ["begin", "commit", "commit", "filtered", "rotate", "heartbeat", "ack", "ack", "tick", "no position"]
    ),
    max_size=40,
)


@settings(max_examples=scaled(300))
@given(steps, st.data())
def test_every_interleaving(script: list[str], data: st.DataObject) -> None:
    """Against a list of what happened: transactions with rows, each acknowledged or not, and traffic without rows."""
    clock = ManualClock()
    tracker = PositionTracker(at(0), clock)
    here, boundaries, inside = 0, {at(0)}, False
    frames: list[list[int]] = []  # ticket, end, acknowledged
    saved = at(0)

    def idle_frame() -> None:
        due = tracker.idle_due()
        if due is not None:
            assert not inside and all(done for *_, done in frames)
            frames.append([tracker.appended(due), here, 0])

    def check() -> None:
        nonlocal saved
        now = tracker.pending_snapshot
        assert now in boundaries  # B: it lands on the end of a transaction
        assert now.order >= saved.order  # D
        prefix = [end for _, end, done in frames[: next((i for i, f in enumerate(frames) if not f[2]), len(frames))]]
        assert now == (at(max(prefix)) if prefix else at(0))  # A and C: the end of the longest acknowledged prefix
        saved = now
        json.dumps(tracker.status())

    for step in script:
        if step == "begin" and not inside:
            inside = True
            tracker.reading(at(here + 1), inside=True)
        elif step == "commit":
            here += 2
            boundaries.add(at(here))
            inside = False
            tracker.reading(at(here), inside=False)
            frames.append([tracker.appended(at(here)), here, 0])
        elif step in ("filtered", "rotate", "heartbeat") and not inside:
            here += {"filtered": 2, "rotate": 10, "heartbeat": 0}[step]
            boundaries.add(at(here))
            tracker.passed(at(here))
        elif step == "no position" and not inside:
            frames.append([tracker.appended(None), here, 0])  # it carries the snapshot, never nothing
        elif step == "ack":
            waiting = [frame for frame in frames if not frame[2]]
            if waiting:
                chosen = data.draw(st.sampled_from(waiting))
                chosen[2] = 1
                tracker.acknowledge(chosen[0])
        elif step == "tick":
            clock.advance(1.5)
            idle_frame()
        check()
    if inside:
        here += 2
        boundaries.add(at(here))
        inside = False
        tracker.reading(at(here), inside=False)
        frames.append([tracker.appended(at(here)), here, 0])
    for _ in range(2):  # everything is acknowledged, then the source is idle
        for frame in frames:
            if not frame[2]:
                frame[2] = 1
                tracker.acknowledge(frame[0])
        check()
        clock.advance(1.5)
        idle_frame()
    for frame in frames:
        frame[2] = frame[2] or tracker.acknowledge(frame[0]) or 1  # type: ignore[func-returns-value]
    assert tracker.pending_snapshot == at(here) == tracker.snapshot  # E
    assert not tracker.pending and tracker.status()["unfinished"] == []


def test_a_source_that_goes_back_is_an_error() -> None:
    tracker = PositionTracker(at(5), ManualClock())
    with pytest.raises(Corruption, match="went back"):
        tracker.appended(at(4))
    tracker.passed(at(4))
    assert tracker.snapshot == at(5)


def test_an_open_transaction_is_never_passed() -> None:
    clock = ManualClock()
    tracker = PositionTracker(at(0), clock)
    tracker.passed(at(3))
    tracker.reading(at(4), inside=True)
    clock.advance(5)
    assert tracker.idle_due() is None
    (one,) = tracker.status()["unfinished"]
    assert one["state"] == "open" and one["restart"]["pos"] == at(3).pos
    tracker.reading(at(3), inside=False)
    assert tracker.idle_due() == at(3)
