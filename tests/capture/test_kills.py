"""Capture into a log in memory, killed after every event, with and without the power: each transaction once, in order."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.binlog.events import split_events
from penstock.binlog.types import ROWS_TYPES
from penstock.capture.loop import Capture
from penstock.clock import ManualClock
from penstock.entries.format import Kind, Part, parse_entry
from penstock.entries.stores import SOURCE, SOURCE_OPEN, SOURCE_POSITION
from penstock.files.memory import MemoryFiles
from penstock.log import Log, LogReader, LogSettings
from penstock.metadata.memory import MemoryMetadata
from penstock.operations.verify.log_replay import read_history
from penstock.sources.position import SourcePosition
from penstock.sources.source import Chunk
from penstock.state import StateReader
from tests.capture.streams import Stream, StreamSource
from tests.capture.test_machine import LARGE, SMALL, create_select, rollbacks, savepoints, xa
from tests.support.budget import scaled

DIRECTORY = Path("/log")


class Killed(BaseException):
    """kill -9: nothing that capture does at its end is done."""


class KilledSource(StreamSource):
    """Delivers one event at a time; the process is killed instead of event number `after`."""

    def __init__(self, stream: Stream, after: int) -> None:
        super().__init__(stream, 1)
        self._after = after

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        for number, chunk in enumerate(super().open(position)):
            if number == self._after:
                raise Killed
            yield chunk


def committed(files: MemoryFiles, metadata: MemoryMetadata) -> list[list[bytes]]:
    """The row events of each transaction that a reader sees."""
    reader = LogReader.open(DIRECTORY, files, metadata)
    void = read_history(reader).void
    found: list[list[bytes]] = []
    for entry in reader.read(reader.first, reader.end()):
        if not len(entry.data):
            continue
        parsed = parse_entry(entry.data)
        events, raw = split_events(parsed.events), parsed.events.tobytes()
        for record in parsed.transactions:
            if record["kind"] in (Kind.HELD, Kind.VOID) or int(record["commit_ts"]) in void:
                continue
            if record["part"] in (Part.WHOLE, Part.FIRST):
                found.append([])
            for i in range(int(record["first_event"]), int(record["first_event"]) + int(record["events"])):
                one = raw[int(events.offset[i]) : int(events.offset[i]) + int(events.size[i])]
                if one[4] in ROWS_TYPES:
                    found[-1].append(one)
    return [rows for rows in found if rows]


@pytest.mark.parametrize(("power", "bytes_max"), [(False, SMALL), (True, SMALL), (True, LARGE)])
@pytest.mark.parametrize("scenario", [xa, savepoints, rollbacks, create_select])
def test_killed_at_every_event(scenario: Callable[[Stream], None], power: bool, bytes_max: int) -> None:
    stream = Stream()
    scenario(stream)
    expected = [[one for one in rows if one[4] in ROWS_TYPES] for rows in stream.committed]
    rng = random.Random(11)
    stops = range(len(stream.events) + 2)
    for stop in stops if len(stops) <= scaled(60) else sorted(rng.sample(stops, scaled(60))):
        files, metadata, clock = MemoryFiles(), MemoryMetadata(), ManualClock()
        for after in (stop, rng.randrange(1, 6), None):  # None: to the end
            log = Log.open(DIRECTORY, LogSettings(), files, clock, metadata)
            source = StreamSource(stream, 3) if after is None else KilledSource(stream, after)
            try:
                with contextlib.suppress(Killed):
                    Capture(log, source, clock=clock, entry_bytes=1, events_bytes_max=bytes_max).run()
                after_it = (files, metadata)
                if after is not None:  # both at the same moment, before anything is closed
                    after_it = (
                        (files.crash(rng), metadata.crashed(rng)) if power else (files.kill(), metadata.killed(rng))
                    )
            finally:
                log.close()
            files, metadata = after_it
        assert committed(files, metadata) == [rows for rows in expected if rows], stop
        state = StateReader.open(LogReader.open(DIRECTORY, files, metadata))
        state.advance()
        position = state.store(SOURCE_POSITION).get(SOURCE)
        assert position is not None and position.pos == stream.at
        assert state.store(SOURCE_OPEN).get(SOURCE) is None
        state.close()
