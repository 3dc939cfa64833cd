"""Cuts the stream of raw events into transactions, and packs these into entries.

A transaction begins with `BEGIN` (MySQL) or a GTID that is not standalone (MariaDB), and ends with XID or QUERY
`COMMIT`; a DDL is a transaction by itself. The result is a series of frames, each an entry (or none) and the state that
belongs to it:

- complete transactions share an entry, up to `entry_bytes`; the caller flushes earlier when nothing more comes;
- a transaction that does not fit into an entry is split into parts. Each part starts with the table maps in force, and
  its frame's state has an `OpenTransaction`;
- a DDL that makes a schema is alone in its entry. The schema of an unknown table is in a frame with state only, before
  the entry with its rows.

The position of a frame is the end of the last complete transaction, or the start of the open one. A restart reads from
there, and skips what is in the log already once it has checked that the events are the same.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import google_crc32c
import numpy as np
import numpy.typing as npt

from penstock.binlog.bodies import (
    GTID_COMPLETED_XA,
    GTID_PREPARED_XA,
    FormatDescription,
    parse_format_description,
    parse_query,
    parse_rotate,
    refuse_unsupported,
)
from penstock.binlog.errors import BadEvent, type_name
from penstock.binlog.events import Events, checksum_matches, maps_in_force, split_events, verify_checksums
from penstock.binlog.types import FLAG_ARTIFICIAL, HEADER_BYTES, EventType, Flavour
from penstock.capture.cut_kernel import FIELDS, LEFT_OUT, SLOTS, Field, Phase, Slot, Stop, cut, end_of
from penstock.capture.schemas import SchemaTracker
from penstock.commit_ts import CommitClock
from penstock.entries.format import (
    EVENTS_BYTES_MAX,
    TXN_DTYPE,
    EntryHeader,
    Kind,
    Part,
    TxnArray,
    encode_entry,
    gtid_text,
)
from penstock.errors import NotSupported
from penstock.files import Buffer
from penstock.schema.model import TableSchema
from penstock.sources.position import OpenTransaction, SourcePosition
from penstock.sources.source import Chunk, SourceError

ENTRY_BYTES = 4 << 20  # an entry of this size is full: large beside its frame's cost, small enough to spread over tasks
_RECORDS_MAX = 1 << 16  # transactions in an entry
_IGNORABLE = 0x80
_COMMENT = re.compile(r"^(\s+|/\*.*?\*/|--[^\n]*\n|#[^\n]*\n)+", re.DOTALL)
_DDL = frozenset({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"})
_DML = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL"})


@dataclass(frozen=True, slots=True)
class FrameContent:
    """What goes into one frame of the log: an entry's buffers (none: state only) and the state after it."""

    data: list[Buffer]
    position: SourcePosition
    open: OpenTransaction | None = None
    schemas: tuple[TableSchema, ...] = ()
    transactions: int = 0
    events: int = 0


class TransactionCutter:
    """Turns the chunks of a source into the content of frames. Make a new one each time that the source is opened."""

    def __init__(
        self,
        position: SourcePosition,
        schemas: SchemaTracker,
        commit_clock: CommitClock,
        *,
        open_transaction: OpenTransaction | None = None,
        entry_bytes: int = ENTRY_BYTES,
        events_bytes_max: int = EVENTS_BYTES_MAX,
    ) -> None:
        self._schemas = schemas
        self._clock = commit_clock
        self._entry_bytes = entry_bytes
        self._bytes_max = events_bytes_max
        self._emitted = position
        self._open = open_transaction
        self._file = position.file
        self._files: list[str] = [position.file]
        self._fde: FormatDescription | None = None
        self._fde_event = b""
        self._known = np.empty(0, np.int64)
        self._domains = _domains(position.gtid)
        self._state = np.zeros(SLOTS, np.int64)
        self._state[Slot.POS] = position.pos
        self._state[Slot.SKIP] = open_transaction.appended if open_transaction else 0
        self._out = np.empty(events_bytes_max, np.uint8)
        self._records = np.zeros((_RECORDS_MAX, FIELDS), np.int64)
        self._gtids = np.zeros((_RECORDS_MAX, 24), np.uint8)
        self._gtid = np.zeros(24, np.uint8)
        self._unsure = not position.file  # a start by GTID: the offset is unknown until an event tells it
        self._checksum = self._repeated_bytes = 0
        self._repeated = 0  # table maps at the head of the buffer that are in the last part already

    @property
    def waiting(self) -> bool:
        """Whether complete transactions wait for `flush`."""
        return bool(self._state[Slot.RECORDS])

    @property
    def between_transactions(self) -> bool:
        return not self.waiting and self._open is None and self._state[Slot.PHASE] == Phase.OUTSIDE

    @property
    def passed(self) -> SourcePosition:
        """The position up to which everything is in a frame already given out, or had nothing to append."""
        if not self.between_transactions or self._unsure:
            return self._emitted
        here = self._emitted.at(
            self._file, int(self._state[Slot.POS]), gtid=self._gtid_text(), commit_ts=self._clock.last
        )
        # A server repeats the format description from the head of the file: that offset is before the one asked for.
        return here if here.order > self._emitted.order else self._emitted

    def feed(self, chunk: Chunk) -> Iterator[FrameContent]:
        """Takes a chunk; gives the frames that are full. Complete transactions may wait for more until `flush`."""
        if not len(chunk.data):
            return
        state = self._state
        if chunk.file:
            self._use_file(chunk.file)
            state[Slot.POS] = chunk.start
        state[Slot.GAPS] = int(chunk.gaps)
        base = int(state[Slot.POS])  # of the chunk's first byte; where a source leaves events out, at or after it
        try:
            yield from self._feed(chunk.data.view())
        except BadEvent as error:
            raise error.at(base + error.offset, file=self._file) from None

    def _feed(self, data: npt.NDArray[np.uint8]) -> Iterator[FrameContent]:
        data.flags.writeable = False
        events = split_events(data)
        boundaries = np.flatnonzero(events.type == EventType.FORMAT_DESCRIPTION).tolist()
        edges = sorted({0, len(events), *boundaries, *(i + 1 for i in boundaries)})
        for first, last in itertools.pairwise(edges):
            part = _some(events, slice(first, last))
            if self._fde is not None and self._fde.trailer_bytes and part.type[0] != EventType.FORMAT_DESCRIPTION:
                self._verify(data, part)
            yield from self._take(data, part)

    def flush(self) -> Iterator[FrameContent]:
        """Gives out the complete transactions that wait; an open one stays."""
        frame = self._pack()
        if frame is not None:
            yield frame

    # -- the loop around the kernel --------------------------------------------------------------------------------

    def _verify(self, data: npt.NDArray[np.uint8], events: Events) -> None:
        # An artificial rotation may lack the checksum that the format description promises; it carries no change.
        plain = ~((events.type == EventType.ROTATE) & (events.flags & FLAG_ARTIFICIAL != 0))
        if not plain.all():
            events = _some(events, plain)
        verify_checksums(data, events)

    def _take(self, data: npt.NDArray[np.uint8], events: Events) -> Iterator[FrameContent]:
        state = self._state
        state[Slot.EVENT_AT] = 0
        trailer = self._fde.trailer_bytes if self._fde else 0
        while True:
            stop = cut(
                data,
                events.offset,
                events.size,
                events.type,
                events.flags,
                events.end_pos,
                state,
                self._out,
                self._records,
                self._gtids,
                self._gtid,
                self._known,
                LEFT_OUT,
                trailer,
                self._entry_bytes,
            )
            if stop == Stop.DONE:
                return
            i = int(state[Slot.EVENT_AT])
            if stop == Stop.SPECIAL:
                at, size = int(events.offset[i]), int(events.size[i])
                try:
                    yield from self._special(data.data[at : at + size], events, i)
                except BadEvent as error:
                    raise error.at(at, event_type=int(events.type[i])) from None
                trailer = self._fde.trailer_bytes if self._fde else 0
            elif stop == Stop.LARGE_ENOUGH:
                yield from self.flush()
            elif stop == Stop.SKIPPED:
                self._resume()
            else:
                yield from self._make_room(int(events.size[i]))

    def _make_room(self, size: int) -> Iterator[FrameContent]:
        state = self._state
        if self.waiting or not self._tail_events():
            yield from self.flush()
            if state[Slot.OUT] + size > len(self._out) and not self._tail_events():
                self._grow(size)
            return
        if state[Slot.SKIP]:
            self._fold()  # these events are in the log already: nothing to give out
            self._keep_maps_only()
        else:
            yield self._split_off_part()

    def _tail_events(self) -> int:
        """How many events of the open transaction are in the buffer, without repeated table maps."""
        return int(self._state[Slot.EVENTS] - self._state[Slot.TXN_EVENTS]) - self._repeated

    def _grow(self, size: int) -> None:
        """A larger buffer, for an event that alone exceeds an entry: it gets one with its table maps only."""
        larger = np.empty(int(self._state[Slot.OUT]) + size, np.uint8)
        larger[: self._state[Slot.OUT]] = self._out[: self._state[Slot.OUT]]
        self._out = larger

    # -- giving out frames -----------------------------------------------------------------------------------------

    def _pack(self) -> FrameContent | None:
        """The finished transactions as one entry; the bytes of an open transaction move to the next buffer."""
        state = self._state
        count = int(state[Slot.RECORDS])
        if not count:
            return None
        inside = state[Slot.PHASE] != Phase.OUTSIDE
        whole = int(state[Slot.TXN_OUT] if inside else state[Slot.OUT])
        records = self._records[:count]
        kept = records[:, Field.KEPT] == 1
        table = self._table(records[kept], self._gtids[:count][kept])
        parts = records[kept, Field.PART]
        if len(table):
            continued = int(parts[0] == Part.LAST)
            table["commit_ts"][continued:] = self._clock.take(len(table) - continued)
            if continued:
                assert self._open is not None
                table["commit_ts"][0] = self._open.commit_ts
        if (records[:, Field.PART] == Part.LAST).any():
            self._open = None
            self._checksum = 0
        self._note_gtids(self._gtids[:count])
        self._unsure = False
        self._emitted = self._emitted.at(
            self._files[int(records[-1, Field.FILE])],
            int(records[-1, Field.END_POS]),
            gtid=self._gtid_text(),
            commit_ts=self._clock.last,
        )
        events = int(table["events"].sum()) if len(table) else 0
        data = self._entry(table, [self._out[:whole].data]) if len(table) else []
        self._move_tail(whole)
        if not data:
            return None
        return FrameContent(data, self._emitted, self._open, transactions=len(table), events=events)

    def _table(
        self,
        records: npt.NDArray[np.int64],
        gtids: npt.NDArray[np.uint8],
    ) -> TxnArray:
        table = np.zeros(len(records), TXN_DTYPE)
        for field, name in (
            (Field.OFFSET, "offset"),
            (Field.LENGTH, "length"),
            (Field.START_POS, "start_pos"),
            (Field.END_POS, "end_pos"),
            (Field.FIRST_EVENT, "first_event"),
            (Field.EVENTS, "events"),
            (Field.FILE, "file"),
            (Field.FILE, "end_file"),
            (Field.PART, "part"),
        ):
            table[name] = records[:, field]
        table["gtid"] = np.ascontiguousarray(gtids).view("V24").reshape(-1)
        return table

    def _entry(self, table: TxnArray, events: list[Buffer]) -> list[Buffer]:
        fde = self._need_fde()
        header = EntryHeader(
            fde.flavour, bool(fde.trailer_bytes), self._emitted.source, tuple(self._files), self._fde_event
        )
        return encode_entry(header, table, events)

    def _move_tail(self, whole: int) -> None:
        """A new buffer with the bytes after `whole`, because the old buffer now belongs to a frame."""
        state = self._state
        tail = self._out[whole : int(state[Slot.OUT])]
        self._out = np.empty(max(self._bytes_max, len(tail)), np.uint8)
        self._out[: len(tail)] = tail
        if state[Slot.PHASE] == Phase.OUTSIDE:
            state[Slot.EVENTS] = state[Slot.TXN_EVENTS] = 0
        else:
            state[Slot.EVENTS] -= state[Slot.TXN_EVENTS]
        state[Slot.TXN_EVENTS] = state[Slot.TXN_OUT] = state[Slot.RECORDS] = 0
        state[Slot.OUT] = len(tail)
        if whole:
            self._repeated = self._repeated_bytes = 0  # they were at the head of the part just given out
        self._files = [self._file]
        state[Slot.FILE] = 0

    def _split_off_part(self) -> FrameContent:
        """The open transaction so far, as a part; the next part starts with the table maps in force."""
        state = self._state
        first = self._open is None
        if first and not self._unsure:
            self._emitted = self._emitted.at(self._file, int(state[Slot.TXN_POS]), gtid=self._gtid_text())
        commit_ts = self._clock.next() if self._open is None else self._open.commit_ts
        start = int(state[Slot.TXN_POS])
        self._open = OpenTransaction(
            commit_ts,
            self._gtid.tobytes().hex(),
            self._file,
            start if self._open is None else self._open.start_pos,
            int(state[Slot.SOURCE_EVENTS]),
            self._fold(),
            int(state[Slot.POS]),
        )
        table = self._one_record(Part.FIRST if first else Part.MIDDLE, Kind.ROWS, commit_ts, start)
        data = self._entry(table, [self._out[: int(state[Slot.OUT])].data])
        events = int(table["events"][0])
        self._emitted = self._emitted.at(self._emitted.file, self._emitted.pos, commit_ts=self._clock.last)
        self._keep_maps_only()
        return FrameContent(data, self._emitted, self._open, events=events)

    def _one_record(self, part: Part, kind: Kind, commit_ts: int, start: int) -> TxnArray:
        state = self._state
        table = np.zeros(1, TXN_DTYPE)
        table["length"] = state[Slot.OUT]
        table["commit_ts"] = commit_ts
        table["start_pos"] = start
        table["end_pos"] = state[Slot.POS]
        table["events"] = state[Slot.EVENTS]
        table["part"] = part
        table["kind"] = kind
        table["gtid"] = np.void(self._gtid.tobytes())
        return table

    def _keep_maps_only(self) -> None:
        """A new buffer that holds only the table maps in force."""
        state = self._state
        maps = maps_in_force(self._out[: int(state[Slot.OUT])])
        self._out = np.empty(max(self._bytes_max, sum(map(len, maps))), np.uint8)
        at = 0
        for table_map in maps:
            self._out[at : at + len(table_map)] = np.frombuffer(table_map, np.uint8)
            at += len(table_map)
        self._repeated = len(maps)
        self._repeated_bytes = at
        state[Slot.OUT] = at
        state[Slot.EVENTS] = len(maps)
        state[Slot.TXN_EVENTS] = state[Slot.TXN_OUT] = 0
        state[Slot.TXN_POS] = state[Slot.POS]
        state[Slot.PART] = int(self._open is not None and state[Slot.SKIP] == 0)

    def _resume(self) -> None:
        """The last event that the log has was read again: checks that these events are the ones in the log."""
        known = self._open
        assert known is not None
        if self._fold() != known.checksum or self._gtid.tobytes().hex() != known.gtid:
            raise SourceError(
                f"the transaction at {known.file}:{known.start_pos} is half in the log, and the source has another one there now",
                hint="was the server restored or replaced? Start with a new state_dir",
            )
        self._keep_maps_only()

    def _fold(self, more: Buffer = b"") -> int:
        """Adds the buffer and `more` to the CRC32C over the open transaction's events, without repeated table maps.

        The caller must empty the buffer afterwards, or its events count twice. Not CRC32: each event ends with its own,
        and the CRC32 of anything followed by its CRC32 is a constant.
        """
        own = self._out[self._repeated_bytes : int(self._state[Slot.OUT])]
        self._checksum = google_crc32c.extend(google_crc32c.extend(self._checksum, own.tobytes()), bytes(more))
        return self._checksum

    # -- rare events -----------------------------------------------------------------------------------------------

    def _special(self, event: memoryview, events: Events, i: int) -> Iterator[FrameContent]:
        state = self._state
        kind = int(events.type[i])
        # A server that starts in the middle of a file first sends its format description, with an end_log_pos of 0.
        artificial = bool(events.flags[i] & FLAG_ARTIFICIAL or (state[Slot.GAPS] and not events.end_pos[i]))
        if kind == EventType.FORMAT_DESCRIPTION:
            yield from self._format(event, artificial)
        elif kind == EventType.ROTATE:
            self._rotate(event, artificial)
            state[Slot.EVENT_AT] = i + 1
            return
        elif kind in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2):
            if state[Slot.PHASE] == Phase.OUTSIDE and state[Slot.GAPS]:
                state[Slot.POS] = end_of(int(state[Slot.POS]), 0, int(events.end_pos[i]), 0, 1)
                self._unsure = self._unsure and not events.end_pos[i]
            state[Slot.EVENT_AT] = i + 1
            return
        elif kind == EventType.QUERY:
            yield from self._query(event, events, i)
            return
        elif kind == EventType.TABLE_MAP and state[Slot.PHASE] == Phase.INSIDE:
            yield from self._table_map(event)
            return  # the table is known now: the kernel takes the event
        else:
            self._refuse(event, kind, int(events.flags[i]))
        if not artificial:
            self._step(events, i)
        state[Slot.EVENT_AT] = i + 1

    def _step(self, events: Events, i: int) -> None:
        state = self._state
        state[Slot.POS] = end_of(
            int(state[Slot.POS]),
            int(events.size[i]),
            int(events.end_pos[i]),
            int(events.flags[i]),
            int(state[Slot.GAPS]),
        )

    def _format(self, event: memoryview, artificial: bool) -> Iterator[FrameContent]:
        fde = parse_format_description(event)
        if fde.trailer_bytes and not checksum_matches(event):
            raise BadEvent("its checksum does not match; the binlog is damaged here", event_type=event[4])
        if fde.table_id_bytes != 6:
            raise NotSupported(f"binlogs of {fde.server_version} are not supported: their table ids have four bytes")
        if self._state[Slot.PHASE] != Phase.OUTSIDE and not artificial:
            self._abandon()
        yield from self.flush()
        self._fde = fde
        self._fde_event = bytes(event)
        self._known = np.empty(0, np.int64)  # a restarted server numbers its tables anew

    def _abandon(self) -> None:
        """Drops the open transaction: a new file begins inside it, so the server died in it and rolled it back."""
        if self._open is not None:
            raise NotSupported(
                f"the transaction at {self._open.file}:{self._open.start_pos} was given up by the server, and a part of it is "
                "in the log",
                hint="start with a new state_dir",
            )
        state = self._state
        state[Slot.PHASE] = Phase.OUTSIDE
        state[Slot.OUT] = state[Slot.TXN_OUT]
        state[Slot.EVENTS] = state[Slot.TXN_EVENTS]
        state[Slot.HAS_ROWS] = state[Slot.SOURCE_EVENTS] = 0

    def _rotate(self, event: memoryview, artificial: bool) -> None:
        fde = dataclasses.replace(self._fde, checksum=int(checksum_matches(event))) if self._fde else None
        if fde is None:
            fde = FormatDescription("", Flavour.MARIADB, int(checksum_matches(event)), b"")
        rotate = parse_rotate(event, fde)
        if self._state[Slot.PHASE] != Phase.OUTSIDE:
            if not artificial:
                raise BadEvent("a rotation inside a transaction", event_type=event[4])
            return
        self._use_file(rotate.file)
        self._state[Slot.POS] = rotate.position

    def _use_file(self, name: str) -> None:
        if name == self._file:
            return
        if self._state[Slot.PHASE] != Phase.OUTSIDE:
            self._abandon()
        self._file = name
        if not self.waiting:
            self._files = []
        self._files.append(name)
        self._state[Slot.FILE] = len(self._files) - 1

    def _table_map(self, event: memoryview) -> Iterator[FrameContent]:
        made = self._schemas.after_table_map(event, self._need_fde(), self._clock.peek())
        if made:
            # Older rows go first: their shape is the one before. The frame stands where this transaction starts.
            yield from self.flush()
            if self._open is None and not self._unsure:
                self._emitted = self._emitted.at(
                    self._file, int(self._state[Slot.TXN_POS]), gtid=self._gtid_text(), commit_ts=self._clock.last
                )
            version = self._clock.next()
            made = tuple(dataclasses.replace(table, version=version) for table in made)
            self._emitted = self._emitted.at(self._emitted.file, self._emitted.pos, commit_ts=self._clock.last)
            yield FrameContent([], self._emitted, self._open, made)
        table_id = int.from_bytes(event[HEADER_BYTES : HEADER_BYTES + 6], "little")
        self._known = np.union1d(self._known, np.array([table_id], np.int64))

    def _query(self, event: memoryview, events: Events, i: int) -> Iterator[FrameContent]:
        state = self._state
        query = parse_query(event, self._need_fde())
        text = _COMMENT.sub("", query.sql)
        word = text[:12].split(None, 1)[0].upper().rstrip(";(") if text.strip() else ""
        inside = state[Slot.PHASE] == Phase.INSIDE
        if word == "XA":
            raise NotSupported("XA transactions are not supported yet", hint=f"at {self._file}:{int(state[Slot.POS])}")
        if word in _DML:
            raise SourceError(
                f"{self._file}:{int(state[Slot.POS])} holds a statement instead of rows: {query.sql[:80]!r}",
                hint="SET GLOBAL binlog_format = 'ROW'; and start again after that point",
            )
        made: tuple[TableSchema, ...] = ()
        if word in _DDL:
            made = self._schemas.after_ddl(query, self._clock.peek())
        if made and inside and state[Slot.SKIP]:
            self._skip_one(event)
        elif made:
            yield from self._ddl(event, events, i, made)
            return
        elif inside and word == "ROLLBACK" and len(text.split()) == 1:
            if state[Slot.HAS_ROWS] or self._open is not None:
                raise NotSupported("a transaction that ends with ROLLBACK after rows is not supported yet")
            self._leave_out(events, i)
            return
        elif not inside:
            self._leave_out(events, i)
            return
        self._step(events, i)
        state[Slot.EVENT_AT] = i + 1

    def _leave_out(self, events: Events, i: int) -> None:
        """The transaction changed nothing that is followed: its GTID and its end are noted, its bytes dropped."""
        state = self._state
        self._step(events, i)
        self._unsure = self._unsure and not events.end_pos[i]
        if state[Slot.PHASE] != Phase.OUTSIDE:
            state[Slot.OUT] = state[Slot.TXN_OUT]
            state[Slot.EVENTS] = state[Slot.TXN_EVENTS]
            if not self.waiting:
                self._note_gtids(self._gtid[None, :])
            else:
                self._empty_record()
        state[Slot.PHASE] = Phase.OUTSIDE
        state[Slot.HAS_ROWS] = state[Slot.SOURCE_EVENTS] = 0
        state[Slot.EVENT_AT] = i + 1

    def _empty_record(self) -> None:
        """A finished transaction without bytes, after those that wait: so GTIDs are noted in order."""
        state = self._state
        n = int(state[Slot.RECORDS])
        if n == len(self._records):
            self._note_gtids(self._gtid[None, :])
            return
        self._records[n] = 0
        self._records[n, Field.START_POS] = state[Slot.TXN_POS]
        self._records[n, Field.END_POS] = state[Slot.POS]
        self._records[n, Field.FILE] = state[Slot.FILE]
        self._gtids[n] = self._gtid
        state[Slot.RECORDS] = n + 1

    def _skip_one(self, event: memoryview) -> None:
        """Passes over a DDL inside a transaction whose first part, with this DDL, is in the log already."""
        state = self._state
        state[Slot.SOURCE_EVENTS] += 1
        state[Slot.SKIP] -= 1
        self._fold(event)
        self._keep_maps_only()
        if state[Slot.SKIP] == 0:
            self._resume()

    def _ddl(self, event: memoryview, events: Events, i: int, made: tuple[TableSchema, ...]) -> Iterator[FrameContent]:
        """A DDL alone in its entry, after the GTID that announced it. A DDL inside a transaction is a part of it."""
        state = self._state
        inside = state[Slot.PHASE] == Phase.INSIDE
        yield from self.flush()
        if inside and self._tail_events() and (state[Slot.HAS_ROWS] or self._open is not None):
            yield self._split_off_part()
        commit_ts = self._clock.next()
        made = tuple(dataclasses.replace(table, version=commit_ts) for table in made)
        if state[Slot.PHASE] == Phase.OUTSIDE:
            state[Slot.TXN_POS] = state[Slot.POS]
            self._gtid[:] = 0
            state[Slot.OUT] = state[Slot.EVENTS] = 0
        start = int(state[Slot.TXN_POS])
        before = bytes(self._out[: int(state[Slot.OUT])]) if not self._repeated else b""
        count = int(state[Slot.EVENTS]) + 1 if not self._repeated else 1
        self._step(events, i)
        state[Slot.EVENT_AT] = i + 1
        state[Slot.SOURCE_EVENTS] += 1
        part = Part.WHOLE if not inside else Part.FIRST if self._open is None else Part.MIDDLE
        table = self._one_record(part, Kind.DDL, commit_ts, start)
        table["length"] = len(before) + len(event)
        table["events"] = count
        data = self._entry(table, [before, bytes(event)])
        if inside:
            if self._open is None and not self._unsure:
                self._emitted = self._emitted.at(self._file, start, gtid=self._gtid_text())
            self._open = OpenTransaction(
                commit_ts,
                self._gtid.tobytes().hex(),
                self._file,
                start if self._open is None else self._open.start_pos,
                int(state[Slot.SOURCE_EVENTS]),
                self._fold(event),
                int(state[Slot.POS]),
            )
            self._keep_maps_only()
            self._emitted = self._emitted.at(self._emitted.file, self._emitted.pos, commit_ts=commit_ts)
        else:
            self._note_gtids(self._gtid[None, :])
            self._unsure = False
            state[Slot.PHASE] = Phase.OUTSIDE
            state[Slot.OUT] = state[Slot.EVENTS] = state[Slot.SOURCE_EVENTS] = state[Slot.TXN_OUT] = 0
            state[Slot.TXN_EVENTS] = 0
            self._emitted = self._emitted.at(
                self._file, int(state[Slot.POS]), gtid=self._gtid_text(), commit_ts=commit_ts
            )
        self._known = np.empty(0, np.int64)  # look at all table maps again: a table may have another shape
        yield FrameContent(data, self._emitted, self._open, made, int(not inside), count)

    def _refuse(self, event: memoryview, kind: int, flags: int) -> None:
        """Raises unless the event may be left out."""
        where = f"{self._file}:{int(self._state[Slot.POS])}"
        refuse_unsupported(kind)
        if kind == EventType.INCIDENT:
            raise SourceError(
                f"{where}: the server reports that it lost events", hint="start again with a new state_dir"
            )
        if kind == EventType.XA_PREPARE or (
            kind == EventType.MARIADB_GTID and event[31] & (GTID_PREPARED_XA | GTID_COMPLETED_XA)
        ):
            raise NotSupported(f"{where}: XA transactions are not supported yet", hint="commit without XA")
        if kind in (EventType.BEGIN_LOAD_QUERY, EventType.EXECUTE_LOAD_QUERY, EventType.APPEND_BLOCK):
            raise SourceError(f"{where} holds a statement instead of rows", hint="SET GLOBAL binlog_format = 'ROW'")
        if kind in EventType._value2member_map_:
            raise BadEvent("it cannot stand here", event_type=kind)
        if not flags & _IGNORABLE:
            raise NotSupported(
                f"{where}: an event of {type_name(kind)} is not known", hint="a newer Penstock may know it"
            )

    # -- GTIDs -----------------------------------------------------------------------------------------------------

    def _need_fde(self) -> FormatDescription:
        if self._fde is None:
            raise SourceError("the source sent events before its format description")
        return self._fde

    def _note_gtids(self, gtids: npt.NDArray[np.uint8]) -> None:
        """Notes the last GTID of each domain. Not for MySQL: its files are read by file and offset."""
        if self._fde is None or self._fde.flavour is not Flavour.MARIADB:
            return
        domains = np.ascontiguousarray(gtids[:, :4]).view("<u4").reshape(-1)
        for domain in np.unique(domains).tolist():
            raw = gtids[np.flatnonzero(domains == domain)[-1]].tobytes()
            if any(raw):
                self._domains[domain] = gtid_text(Flavour.MARIADB, raw)

    def _gtid_text(self) -> str:
        return ",".join(self._domains[domain] for domain in sorted(self._domains))


def _some(events: Events, which: slice | npt.NDArray[np.bool_]) -> Events:
    return Events(
        events.offset[which],
        events.size[which],
        events.type[which],
        events.flags[which],
        events.end_pos[which],
        events.timestamp[which],
        events.server_id[which],
        events.consumed,
    )


def _domains(gtid: str) -> dict[int, str]:
    return {int(part.split("-")[0]): part for part in gtid.split(",") if part.count("-") == 2}
