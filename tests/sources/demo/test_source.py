"""The demo's bytes are well formed, the same each time from any position, and as many as its truth says."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from penstock.binlog.events import split_events, verify_checksums
from penstock.binlog.types import EventType
from penstock.clock import ManualClock
from penstock.sources.demo.plan import Plan
from penstock.sources.demo.source import DemoSource
from penstock.sources.demo.stream import chunk_file, chunk_of, file_name
from penstock.sources.demo.truth import truth
from penstock.sources.position import SourcePosition
from penstock.sources.settings import DemoSettings
from penstock.sources.source import SourceError

SIZE = 3000


def _settings(**values: int) -> DemoSettings:
    return DemoSettings.model_validate({"type": "demo", "seed": 3, "changes": SIZE, **values})


def _read(position: SourcePosition) -> dict[str, bytearray]:
    """The stream from a position on, by file; the repeated format description is left out."""
    files: dict[str, bytearray] = {}
    for chunk in DemoSource(_settings(), ManualClock()).open(position):
        if chunk.idle:
            break
        if not (chunk.start == 4 and len(chunk.data) == 252):
            files.setdefault(chunk.file, bytearray()).extend(chunk.data.tobytes())
    return files


def test_every_event_is_whole_and_its_checksum_right() -> None:
    plan = Plan(3, SIZE)
    seen: set[int] = set()
    for number in range(plan.chunks):
        file = chunk_file(plan, number)
        assert file.data[:4].tobytes() == b"\xfebin"
        events = split_events(file.data, start=4)
        verify_checksums(file.data, events)
        assert (events.end_pos == events.offset + events.size).all()
        seen |= set(events.type.tolist())
    assert {EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1, EventType.QUERY} <= seen


def test_the_bytes_from_any_transaction_on_are_the_same() -> None:
    plan = Plan(3, SIZE)
    source = DemoSource(_settings(), ManualClock())
    whole = _read(source.begin(0).position)
    assert list(whole) == [file_name(k) for k in range(plan.chunks)]
    for number in (0, plan.alter_chunk, plan.chunks - 1):
        file = chunk_file(plan, number)
        for end in file.ends[:: len(file.ends) // 5].tolist():
            rest = _read(SourcePosition(file.name, end, source=source.name))
            assert bytes(rest.pop(file.name, b"")) == file.data[end:].tobytes()
            assert all(rest[name] == whole[name] for name in rest)


def test_another_seed_gives_other_bytes_of_the_same_shape() -> None:
    one, other = chunk_file(Plan(1, SIZE), 2), chunk_file(Plan(2, SIZE), 2)
    assert one.data.tobytes() != other.data.tobytes()
    assert chunk_file(Plan(1, SIZE), 2).data.tobytes() == one.data.tobytes()


def test_as_many_changes_as_the_truth_says() -> None:
    plan = Plan(3, SIZE)
    expected = truth(3, SIZE)
    counted = sum(int(chunk_file(plan, k).rows[-1]) for k in range(plan.chunks))
    assert counted == sum(table.changes for table in expected.values())
    assert all(table.rows.num_rows == table.inserts - table.deletes for table in expected.values())
    assert expected["shop.orders"].deletes > 0
    notes = expected["shop.orders"].rows["note"]
    assert 0 < notes.null_count < len(notes)


def test_a_position_of_another_demo_or_inside_a_transaction_is_refused() -> None:
    source = DemoSource(_settings(), ManualClock())
    with pytest.raises(SourceError, match="not demo:3"):
        next(iter(source.open(SourcePosition(file_name(0), 4, source="demo:9:1"))))
    inside = int(chunk_file(Plan(3, SIZE), 0).ends[7]) + 10
    with pytest.raises(SourceError, match="start of a transaction"):
        next(iter(source.open(SourcePosition(file_name(0), inside, source=source.name))))


def test_the_rate_holds() -> None:
    clock = ManualClock()
    source = DemoSource(_settings(rate=500), clock)
    plan = Plan(3, SIZE)
    last = source.begin(0).position
    for chunk in source.open(last):
        if clock.monotonic() > 1.0:
            break
        if not chunk.idle:
            last = last.at(chunk.file, chunk.start + len(chunk.data))
    files = [chunk_file(plan, k) for k in range(chunk_of(last.file) + 1)]
    rows = sum(int(f.rows[-1]) for f in files[:-1])
    before = int(np.searchsorted(files[-1].ends, last.pos, side="right"))
    rows += int(files[-1].rows[before - 1]) if before else 0
    assert 400 <= rows <= 510


def test_the_end_is_the_end_of_the_last_file() -> None:
    source = DemoSource(_settings(), ManualClock())
    files = _read(source.begin(0).position)
    name, data = list(files.items())[-1]
    assert (source.end().file, source.end().pos) == (name, 4 + 252 + len(data))
    assert all(a < b for a, b in itertools.pairwise(sorted(files)))
