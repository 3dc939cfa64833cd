"""The planner's follower: the same frames and schemas from any start, on a whole log and on one that was trimmed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from penstock.capture.loop import Capture
from penstock.log import Log, LogReader, LogSettings, Position
from penstock.schema.view import SchemaView
from penstock.sources.demo.source import DemoSource
from penstock.spark.log_follower import LogFollower
from penstock.spark.plan import FrameSummary, Planner, PlanSettings
from penstock.state import BucketState, StateReader, StateSettings
from tests.capture.running import demo

TRIMMING = LogSettings(ledger_entries_max=3, retention_seconds=0.0, maintenance_interval_seconds=0)


def frames_of(follower: LogFollower) -> list[FrameSummary]:
    found: list[FrameSummary] = []
    while frames := follower.more():
        found += frames
    return found


def test_a_follower_may_start_anywhere_and_on_a_trimmed_log(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with Log.open(directory, TRIMMING) as log:
        log.pin("test", Position(1, 0))
        Capture(log, DemoSource(demo()), entry_bytes=4096).run(until_now=True)
    with Log.open(directory, TRIMMING) as log:
        state = BucketState.open(log)  # closed with the log
        # Checkpoints are written beside the appends; two at the end replace whichever were written so far.
        for _ in range(StateSettings().checkpoints_kept):
            log.append(b"a frame without state").result()
            state.checkpoint()
    reader = LogReader.open(directory)
    whole = frames_of(LogFollower(reader))
    positions = [frame.position for frame in whole]
    assert positions[-1] == reader.end()
    assert positions[-1].ledger_id > 10
    assert sum(len(frame.schemas) for frame in whole) > 3
    truth = SchemaView((frame.position, table) for frame in whole for table in frame.schemas)
    names = {(table.schema, table.table) for frame in whole for table in frame.schemas}

    def check(start: int) -> None:
        follower = LogFollower(reader, positions[start])
        seen = SchemaView(follower.in_force())
        rest = frames_of(follower)
        assert rest == whole[start:]
        for frame in rest:
            for table in frame.schemas:
                seen.add(frame.position, table)
        for position in positions[start:]:
            for schema, table in names:
                assert seen.find(schema, table, position) == truth.find(schema, table, position)

    for start in range(0, len(positions), 7):
        check(start)
    with Log.open(directory, TRIMMING) as log:
        cursor = log.open_cursor("slow")
        cursor.mark_delete(positions[15]).result()
        cursor.close()
        log.unpin("test")
        log.trim()
    reader.refresh()
    assert positions[0] < reader.first <= positions[16]
    for start in range(16, len(positions), 3):
        check(start)
    # The slow reader is behind every checkpoint that is kept.
    assert StateReader.open(reader, at="earliest").position > positions[16]


def test_a_batch_that_follows_a_trimmed_ledger_is_read_whole(tmp_path: Path) -> None:
    """What was delivered is trimmed while the next batch, which is planned already, waits for its task."""
    directory = tmp_path / "log"
    settings = replace(TRIMMING, ledger_entries_max=1)
    with Log.open(directory, settings) as log:
        cursor = log.open_cursor("lake", start="earliest")
        Capture(log, DemoSource(demo()), entry_bytes=4096).run(until_now=True)
        reader = LogReader.open(directory)
        start, read = cursor.read_position, list[Position]()
        planner = Planner(LogFollower.open(directory, start).more, PlanSettings(8192, 1024, 2))
        expected = [entry.position for entry in reader.read(start, reader.end())]
        while (end := planner.end_of_batch(start)) != start:
            ranges = planner.ranges(start, end)
            if read:  # the last batch is delivered, and trimmed, before this one is read
                cursor.mark_delete(read[-1]).result()
                log.trim()  # or the log's own maintenance has just done so
                reader.refresh()
            for planned in ranges:
                read += [entry.position for entry in reader.read(planned.first, planned.end)]
            start = end
        assert sum(position < reader.first for position in expected) > 10
        assert read == expected
        reader.close()
