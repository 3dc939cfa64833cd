"""A log in memory for tests of cutting: frames in order, what a restart knows from them, and what a reader sees."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from penstock.binlog.events import split_events
from penstock.binlog.types import ROWS_TYPES, EventType
from penstock.capture.schemas import SchemaTracker
from penstock.capture.transactions.cutter import TransactionCutter
from penstock.capture.transactions.frame_content import FrameContent
from penstock.capture.transactions.machine import Hindsight, ReadAgain
from penstock.clock import ManualClock
from penstock.commit_ts import CommitClock
from penstock.entries.format import Kind, ParsedEntry, Part, parse_entry
from penstock.log import Entry
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaView
from penstock.sources.position import HeldGroup, SourcePosition
from penstock.sources.settings import Tables
from penstock.sources.source import IDLE, Chunk, Source
from tests.capture.streams import FILE, Stream, StreamSource

START = SourcePosition(FILE, 4, source="test")


class NoGroups:
    """For streams without XA."""

    def find(self, xid: str) -> HeldGroup | None:
        del xid
        return None

    def read(self, group: HeldGroup) -> Iterator[ParsedEntry]:
        raise AssertionError(group)


class FakeLog:
    """Frames in order, and what a restart knows from them. It is also the store of its held groups."""

    def __init__(self, start: SourcePosition = START) -> None:
        self.start = start
        self.frames: list[FrameContent] = []
        self.clock = ManualClock()
        self.read_again = 0
        self._tables: Tables | None = None

    def run(
        self,
        stream: Stream | Source,
        *,
        stop_after: int | None = None,
        per_chunk: int = 3,
        bytes_max: int = 1 << 20,
        frames_max: int | None = None,
        entry_bytes: int | None = None,
        tables: Tables | None = None,
    ) -> None:
        """Reads from where the last frame says, with a new cutter, as a new process would.

        Stops as if killed after so many events of the stream, or once so many frames are durable.
        """
        source = StreamSource(stream, per_chunk, stop_after) if isinstance(stream, Stream) else stream
        sizes = (entry_bytes or bytes_max // 4, bytes_max)
        self._tables = tables
        hindsight: Hindsight | None = None
        while True:
            try:
                self._run_once(source, sizes, hindsight, frames_max)
            except ReadAgain as again:
                self.read_again += 1
                assert self.read_again < 50, "the same transaction is read again and again"
                hindsight = again.hindsight
            else:
                return

    def _run_once(
        self, source: Source, sizes: tuple[int, int], hindsight: Hindsight | None, frames_max: int | None
    ) -> None:
        last = self.frames[-1] if self.frames else None
        position = last.position if last else self.start
        schemas = SchemaTracker(self._tables, self.schemas)
        cutter = TransactionCutter(
            position,
            schemas,
            CommitClock(position.commit_ts, self.clock),
            self,
            open_transaction=last.open if last else None,
            hindsight=hindsight,
            entry_bytes=sizes[0],
            events_bytes_max=sizes[1],
        )
        for chunk in source.open(position):
            for frame in itertools.chain(cutter.feed(chunk), cutter.flush() if chunk.idle else ()):
                for table in frame.schemas:
                    schemas.record(table)
                self.frames.append(frame)
                if frames_max is not None and len(self.frames) >= frames_max:
                    return

    # -- held groups -----------------------------------------------------------------------------------------------

    def find(self, xid: str) -> HeldGroup | None:
        found: HeldGroup | None = None
        for frame in self.frames:
            if frame.held is not None and frame.held.xid == xid:
                found = frame.held
            if frame.released == xid:
                found = None
        return found

    def read(self, group: HeldGroup) -> Iterator[ParsedEntry]:
        for entry in self.entries():
            records = entry.transactions
            if ((records["kind"] == Kind.HELD) & (records["commit_ts"] == group.commit_ts)).any():
                yield entry

    # -- what is in it ---------------------------------------------------------------------------------------------

    @property
    def schemas(self) -> list[TableSchema]:
        return [table for frame in self.frames for table in frame.schemas]

    @property
    def void(self) -> set[int]:
        return {frame.void for frame in self.frames if frame.void}

    def entries(self) -> list[ParsedEntry]:
        return [parse_entry(b"".join(bytes(part) for part in frame.data)) for frame in self.frames if frame.data]

    def committed(self) -> list[list[bytes]]:
        """The row events and DDL of each transaction that a reader sees, in the order of the log.

        Checks on the way that parts are whole, in order and not mixed with others, and that commit_ts ascends.
        """
        found: list[list[bytes]] = []
        commit_ts = 0
        inside = False
        for entry in self.entries():
            events = split_events(entry.events)
            raw = entry.events.tobytes()
            for record in entry.transactions:
                if record["kind"] in (Kind.HELD, Kind.VOID) or int(record["commit_ts"]) in self.void:
                    continue
                first = record["part"] in (Part.WHOLE, Part.FIRST)
                assert first != inside, "a transaction begins inside another, or goes on without one"
                assert int(record["commit_ts"]) > commit_ts if first else int(record["commit_ts"]) == commit_ts
                commit_ts = int(record["commit_ts"])
                inside = record["part"] in (Part.FIRST, Part.MIDDLE)
                start = int(record["first_event"])
                own = [
                    raw[int(events.offset[i]) : int(events.offset[i]) + int(events.size[i])]
                    for i in range(start, start + int(record["events"]))
                ]
                if first:
                    found.append([])
                found[-1] += own[-1:] if record["kind"] == Kind.DDL else [one for one in own if one[4] in ROWS_TYPES]
        assert not inside or self.frames[-1].open is not None
        return found

    def source_events(self) -> list[bytes]:
        """All events in the log without repeated table maps; checks that the records add up on the way."""
        found: list[bytes] = []
        for entry in self.entries():
            events = split_events(entry.events)
            raw = entry.events.tobytes()
            assert int(entry.transactions["length"].sum()) == len(raw)
            assert int(entry.transactions["events"].sum()) == len(events)
            ordinals = np.cumsum(entry.transactions["events"]) - entry.transactions["events"]
            assert (entry.transactions["first_event"] == ordinals).all()
            for record in entry.transactions:
                first, count = int(record["first_event"]), int(record["events"])
                assert not count or int(events.offset[first]) == int(record["offset"])
                own = [
                    raw[int(events.offset[i]) : int(events.offset[i]) + int(events.size[i])]
                    for i in range(first, first + count)
                ]
                rows_seen = False
                for kind in (one[4] for one in own):
                    rows_seen = rows_seen or kind == EventType.TABLE_MAP
                    assert kind != EventType.WRITE_ROWS_V1 or rows_seen, "rows without their table map"
                if record["part"] in (Part.MIDDLE, Part.LAST) and record["kind"] == Kind.ROWS:
                    own = _without_repeated(own, found)
                found += own
        return found

    def decodable(self) -> tuple[list[Entry], SchemaView, set[int]]:
        """The log as its readers get it: entries, schemas at their positions, and what is void."""
        entries: list[Entry] = []
        view = SchemaView()
        for number, frame in enumerate(self.frames):
            position = Position(1, number)
            for table in frame.schemas:
                view.add(position, table)
            if frame.data:
                entries.append(Entry(position, memoryview(b"".join(bytes(part) for part in frame.data)), (), 0))
        return entries, view, self.void

    def forget_last(self, count: int) -> None:
        """The last frames never became durable."""
        del self.frames[len(self.frames) - count :]

    def moved(self, **changes: str) -> None:
        """As if the last frame had been read from another source."""
        last = self.frames[-1]
        self.frames[-1] = replace(last, position=replace(last.position, **changes))  # type: ignore[arg-type]


class FileSource:
    """A binlog file in memory, in chunks of so many events; stops, as if killed, after some of them."""

    name = "test"

    def __init__(self, data: bytes, per_chunk: int = 50, stop_after: int | None = None) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self._events = split_events(self._data, start=4)
        self._step, self._stop_after = per_chunk, stop_after

    def __len__(self) -> int:
        return len(self._events)

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        offsets, sizes = self._events.offset.tolist(), self._events.size.tolist()
        last = len(offsets) if self._stop_after is None else self._stop_after
        yield Chunk(self._data[4 : 4 + sizes[0]], FILE, 4)
        first = max(1, offsets.index(position.pos) if position.pos in offsets else len(offsets) * (position.pos > 4))
        for at in range(first, last, self._step):
            end = min(at + self._step, last) - 1
            yield Chunk(self._data[offsets[at] : offsets[end] + sizes[end]], FILE, offsets[at])
        if self._stop_after is None:
            yield IDLE


def captured(data: bytes, **options: int) -> FakeLog:
    """A binlog file, cut by the real cutter."""
    log = FakeLog()
    log.run(FileSource(data), **options)  # type: ignore[arg-type]
    return log


def _without_repeated(own: list[bytes], before: list[bytes]) -> list[bytes]:
    """A continued part starts with table maps that the log has already."""
    known = set(before)
    while own and own[0][4] == EventType.TABLE_MAP and own[0] in known:
        own = own[1:]
    return own
