"""Positions across ledgers: the same answers as walking over all of them, and as cheap with ten thousand as with ten."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.log import Log, LogSettings, Position
from penstock.log.ledgers.info import LedgerInfo
from penstock.log.read.positions import LedgerView, LedgerViews


@st.composite
def _views(draw: st.DrawFn) -> LedgerViews:
    ids = sorted(draw(st.sets(st.integers(1, 12), max_size=6)))
    views = []
    for number in ids:
        entries = draw(st.integers(0, 4))
        state = "open" if number == ids[-1] and draw(st.booleans()) else "sealed"
        views.append(LedgerView(LedgerInfo(number, 1, 0, state, entries), entries, 0))
    last = views[-1]._replace(entries=draw(st.integers(0, 4))) if views and not views[-1].info.sealed else None
    found = LedgerViews(views)
    return found.grown(last) if last is not None else found


_positions = st.builds(Position, st.integers(0, 13), st.integers(-1, 5))


@given(_views(), _positions, st.integers(0, 12))
def test_positions_are_those_of_a_walk(views: LedgerViews, position: Position, number: int) -> None:
    entries = [Position(view.info.id, entry) for view in views for entry in range(view.entries)]
    assert views.entries == len(entries)
    assert views.end == (entries[-1] if entries else None)
    assert views.up_to(position) == sum(entry <= position for entry in entries)
    assert views.previous(position) == max((entry for entry in entries if entry < position), default=None)
    assert views.numbered(number) == (entries[number] if number < len(entries) else None)
    assert list(views) == [views[at] for at in range(len(views))] == views[:]
    assert [view.info.id for view in views.since(position.ledger_id)] == [
        view.info.id for view in views if view.info.id >= position.ledger_id
    ]
    assert views.find(position.ledger_id) == next((v for v in views if v.info.id == position.ledger_id), None)
    following = [entry for entry in entries if entry > position]
    if following:
        assert views.next(position) <= following[0]
    if position in entries:
        assert views.kept(position) == position
        reached = entries[min(entries.index(position) + number, len(entries) - 1)]
        assert views.advance(position, number) == reached


def _seconds(directory: Path, ledgers: int) -> float:
    """CPU of a read from the tail of a log of so many ledgers: the least of several."""
    log = Log.open(directory / "log", LogSettings(maintenance_interval_seconds=0))
    span = log.append_many([b"x"] * 3000).result(60)
    old = tuple(LedgerInfo(number, 1, 0, "sealed", 1, 200, 1, 1) for number in range(-ledgers, 0))
    log._parts.catalog.change(lambda listed: dataclasses.replace(listed, ledgers=(*old, *listed.ledgers)))
    log.reader().refresh()
    cursor = log.open_cursor("c", durable=False, start=span.first)
    cursor.read_or_wait(10)
    found = []
    for _ in range(30):
        started = time.process_time()
        for entry in cursor.read_or_wait(10):
            cursor.ack(entry.position)
        assert cursor.backlog() >= 2
        found.append(time.process_time() - started)
    log._parts.catalog.change(
        lambda listed: dataclasses.replace(listed, ledgers=tuple(info for info in listed.ledgers if info.id > 0))
    )
    log.close()
    return min(found)


def test_a_read_costs_the_same_with_ten_thousand_ledgers(tmp_path: Path) -> None:
    few, many = _seconds(tmp_path / "few", 10), _seconds(tmp_path / "many", 10_000)
    assert many < 1.2 * few + 0.00005  # measured 1.04; 45 ms when every read walked over all of them
