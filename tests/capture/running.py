"""Capture of the demo into a log, and what the log must hold after it: for tests that need a filled log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.binlog.events import split_events
from penstock.binlog.types import ROWS_TYPES, EventType
from penstock.capture.loop import Capture
from penstock.entries.format import parse_entry
from penstock.log import Log, LogReader
from penstock.sources.demo.plan import Plan
from penstock.sources.demo.stream import chunk_file
from penstock.sources.settings import DemoSettings
from penstock.sources.source import Source
from penstock.state import StateReader

SIZE = 2000
KEPT = ROWS_TYPES | {EventType.QUERY, EventType.XID, EventType.TABLE_MAP, EventType.MARIADB_GTID}


def demo(**values: int) -> DemoSettings:
    return DemoSettings.model_validate({"type": "demo", "seed": 5, "changes": SIZE, **values})


def expected_events() -> list[bytes]:
    found = []
    for number in range(Plan(5, SIZE).chunks):
        data = chunk_file(Plan(5, SIZE), number).data
        events = split_events(data, start=4)
        raw = data.tobytes()
        found += [
            raw[o : o + s]
            for o, s, t in zip(events.offset.tolist(), events.size.tolist(), events.type.tolist(), strict=True)
            if t in KEPT
        ]
    return found


def logged_events(directory: Path) -> list[bytes]:
    reader = LogReader.open(directory)
    found = []
    for entry in reader.read(reader.first, reader.end()):
        if len(entry.data):
            events = parse_entry(entry.data).events
            split = split_events(events)
            raw = events.tobytes()
            found += [raw[o : o + s] for o, s in zip(split.offset.tolist(), split.size.tolist(), strict=True)]
    return found


def capture(directory: Path, source: Source, **options: Any) -> bool:
    log = Log.open(directory)
    try:
        return Capture(log, source, **options).run(until_now=True)
    finally:
        log.close()


def state_of(directory: Path) -> StateReader:
    state = StateReader.open(LogReader.open(directory))
    state.advance()
    return state
