"""Binlog files → groups of committed transactions, in order, and what is told between them.

The files go through capture's own cutter, so what is a change is decided once. A frame that capture would append to its log
becomes an entry of a group here; rows are decoded by whoever takes the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from penstock.binlog.bodies import parse_format_description, parse_query
from penstock.binlog.events import split_events
from penstock.binlog.types import EventType
from penstock.capture.transactions.classify import Verb, classify
from penstock.capture.transactions.cutter import TransactionCutter
from penstock.capture.transactions.frame_content import Ending, FrameContent, Told
from penstock.capture.transactions.machine import Hindsight, ReadAgain
from penstock.commit_ts import CommitClock
from penstock.entries.decode import EntryGroup
from penstock.entries.format import EVENTS_BYTES_MAX, Kind, ParsedEntry, Part, gtid_text, parse_buffers
from penstock.errors import PenstockError
from penstock.log.position import Position
from penstock.operations.binlog.file_schemas import FileSchemas, unparked
from penstock.operations.binlog.given_files import GivenFiles
from penstock.operations.binlog.waiting import Waiting
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaView
from penstock.sources.position import SourcePosition
from penstock.sources.source import Chunk

_GROUP_BYTES = 2 << 20  # of events: enough that the cost of a group is small beside that of its rows

Wanted = Callable[[str, str], bool]
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Seen:
    """Something between the rows. `changes`: the names that a DDL changed, with what they are after it."""

    told: Told
    changes: tuple[TableSchema, ...] = ()
    rows_known: bool = True  # of an XA group that committed: it was prepared in these files

    @property
    def is_ddl(self) -> bool:
        query = self.told.query
        return bool(self.changes) or (query is not None and classify(query.sql).verb is Verb.DDL)


class FileReader:
    """Reads files once, from the first to the last. `progress` is told how many bytes were read; `look` is given every
    chunk before it is cut, in part a second time where a transaction must be read again."""

    def __init__(
        self,
        files: GivenFiles,
        given: Iterable[TableSchema] = (),
        *,
        wanted: Wanted = lambda schema, table: True,
        note: Callable[[str], None] = lambda text: None,
        progress: Progress = lambda size: None,
        look: Callable[[Chunk], None] | None = None,
        events_bytes_max: int = EVENTS_BYTES_MAX,
    ) -> None:
        given = list(given)
        self._files = files
        self._schemas = FileSchemas(given, note)
        self.view = SchemaView((Position(0, 0), table) for table in given)
        self._wanted = wanted
        self._progress = progress
        self._look = look
        self._events_bytes_max = events_bytes_max  # of one entry: a transaction above that waits for its end
        self._waiting = Waiting()
        self._clock = CommitClock()
        self._frames = 0
        self._group = self._new_group()

    def read(self) -> Iterator[EntryGroup | Seen]:
        """Groups and what stands between them, in the order of the commits.

        Where the files cannot be read on, everything that was committed before that place comes first, then the error.
        """
        position: SourcePosition | None = self._files.start
        hindsight: Hindsight | None = None
        try:
            while position is not None:
                cutter = self._cutter(position, hindsight)
                try:
                    yield from self._read_from(position, cutter)
                    position = None
                except ReadAgain as again:  # a savepoint took back what waits already
                    position, hindsight = cutter.passed, again.hindsight
                except PenstockError:
                    yield from self._finish(cutter)
                    raise
            yield from self._finish(cutter)
            unfinished = cutter.unfinished
            if unfinished is not None:
                yield Seen(unfinished)
        finally:
            self._waiting.close()

    def _cutter(self, position: SourcePosition, hindsight: Hindsight | None) -> TransactionCutter:
        return TransactionCutter(
            position,
            self._schemas,
            self._clock,
            self._waiting,
            hindsight=hindsight,
            events_bytes_max=self._events_bytes_max,
            tells=True,
        )

    def _new_group(self) -> EntryGroup:
        return EntryGroup(self.view, self._wanted)

    def _read_from(self, position: SourcePosition, cutter: TransactionCutter) -> Iterator[EntryGroup | Seen]:
        name = ""
        before = 0
        for chunk in self._files.open(position):
            if self._look is not None and len(chunk.data):
                self._look(chunk)
            for frame in cutter.feed(chunk):
                yield from self._take(frame)
            if chunk.file and chunk.file != name:
                name, before = chunk.file, self._files.bytes_before(chunk.file)
            if len(chunk.data):
                self._progress(before + chunk.start + len(chunk.data))

    def _finish(self, cutter: TransactionCutter) -> Iterator[EntryGroup | Seen]:
        for frame in cutter.flush():
            yield from self._take(frame)
        yield from self._end_group()

    def _end_group(self) -> Iterator[EntryGroup]:
        if len(self._group):
            full, self._group = self._group, self._new_group()
            yield full

    # -- frames ----------------------------------------------------------------------------------------------------

    def _take(self, frame: FrameContent) -> Iterator[EntryGroup | Seen]:
        self._frames += 1
        position = Position(1, self._frames)
        for table in frame.schemas:
            self._schemas.record(table)
            self.view.add(position, unparked(table))
        if frame.void:
            self._waiting.drop(frame.void)
        elif frame.data:
            yield from self._entry(position, frame)
        if frame.held is not None:
            self._waiting.hold(frame.held)
        known = not frame.released or self._waiting.knows(frame.released)
        if frame.released:
            self._waiting.release(frame.released)
        if frame.told is not None:
            yield from self._end_group()
            yield Seen(frame.told, rows_known=known)

    def _entry(self, position: Position, frame: FrameContent) -> Iterator[EntryGroup | Seen]:
        parsed = parse_buffers(frame.data)
        record = parsed.transactions[0]
        commit_ts = int(record["commit_ts"])
        if frame.open is not None or record["kind"] == Kind.HELD:
            self._waiting.add(commit_ts, position, frame.data, frame.schemas)
            return
        start = -1
        if record["part"] == Part.LAST:
            for part in self._waiting.take(commit_ts):
                start = int(part.parsed.transactions["start_pos"][0]) if start < 0 else start
                yield from self._give(part.position, _starting_at(part.parsed, start), part.made)
            parsed = _starting_at(parsed, start) if start >= 0 else parsed
        yield from self._give(position, parsed, frame.schemas)

    def _give(
        self, position: Position, parsed: ParsedEntry, made: tuple[TableSchema, ...]
    ) -> Iterator[EntryGroup | Seen]:
        if parsed.transactions["kind"][0] == Kind.DDL:
            yield from self._end_group()
            yield Seen(_ddl(parsed), made)
            return
        if len(parsed.events) >= _GROUP_BYTES or not self._group.takes(parsed):
            yield from self._end_group()
        self._group.add(position, parsed)
        if len(parsed.events) >= _GROUP_BYTES:  # alone in its group, its bytes need not be copied beside others
            yield from self._end_group()


def _starting_at(parsed: ParsedEntry, start: int) -> ParsedEntry:
    """A part of a transaction, with the place where the transaction starts."""
    transactions = parsed.transactions.copy()
    transactions["start_pos"] = start
    return replace(parsed, transactions=transactions)


def _ddl(parsed: ParsedEntry) -> Told:
    header, record = parsed.header, parsed.transactions[0]
    fde = replace(parse_format_description(header.fde), checksum=int(header.checksum))
    events = split_events(parsed.events)
    i = int(np.flatnonzero(events.type == EventType.QUERY)[-1])
    start = int(events.offset[i])
    query = parse_query(parsed.events[start : start + int(events.size[i])].tobytes(), fde)
    tag = header.tags[int(record["tag"]) - 1] if record["tag"] else ""
    gtid = gtid_text(header.flavour, bytes(record["gtid"]), tag)
    file = header.files[int(record["file"])]
    return Told(Ending.STATEMENT, file, int(record["start_pos"]), gtid, int(events.timestamp[i]), query=query)
