"""Cuts the stream of raw events into transactions, and these into the content of frames.

The kernel (kernel.py) takes the common events and stops at the others. A rare event is classified (classify.py) and moves
the transaction machine (machine.py), which gives out frames; the bytes are the packer's (packer.py).

- Complete transactions share an entry, up to `entry_bytes`; the caller flushes earlier when nothing more comes.
- A transaction that does not fit into an entry is split into parts, each of which starts with the table maps in force.
- A DDL that makes a schema is alone in its entry. The schema of an unknown table is in a frame with state only, before
  the entry with its rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.binlog.bodies import (
    FormatDescription,
    parse_format_description,
    parse_gtid,
    parse_mariadb_gtid,
    parse_rotate,
    refuse_unsupported,
)
from penstock.binlog.errors import BadEvent, type_name
from penstock.binlog.events import Events, checksum_matches, split_events, verify_checksums
from penstock.binlog.expand import plain_events
from penstock.binlog.types import COMPRESSED_TYPES, FLAG_ARTIFICIAL, EventType, Flavour
from penstock.capture.schemas import SchemaTracker
from penstock.capture.transactions.classify import load_as_query, xid_text
from penstock.capture.transactions.frame_content import Ending, FrameContent, Told
from penstock.capture.transactions.kernel import LEFT_OUT, Phase, Slot, Stop, cut, end_of
from penstock.capture.transactions.machine import Hindsight, State, TransactionMachine
from penstock.capture.transactions.packer import EntryPacker
from penstock.capture.transactions.reading import Reading
from penstock.capture.transactions.statements import Statements
from penstock.capture.transactions.xa import HeldGroups, XaGroups
from penstock.commit_ts import CommitClock
from penstock.entries.format import EVENTS_BYTES_MAX, pack_gtid
from penstock.errors import NotSupported
from penstock.sources.position import OpenTransaction, SourcePosition
from penstock.sources.source import Chunk, SourceError

ENTRY_BYTES = 4 << 20  # an entry of this size is full: large beside its frame's cost, small enough to spread over tasks
_IGNORABLE = 0x80


class TransactionCutter:
    """Turns the chunks of a source into the content of frames. Make a new one each time that the source is opened."""

    def __init__(
        self,
        position: SourcePosition,
        schemas: SchemaTracker,
        commit_clock: CommitClock,
        groups: HeldGroups,
        *,
        open_transaction: OpenTransaction | None = None,
        hindsight: Hindsight | None = None,
        entry_bytes: int = ENTRY_BYTES,
        events_bytes_max: int = EVENTS_BYTES_MAX,
        tells: bool = False,
    ) -> None:
        """With `tells`, frames also say how transactions ended that leave nothing in the log, and logged statements are
        kept in the entries instead of being refused: for those who look at a stream, not for a log."""
        self._entry_bytes = entry_bytes
        self._packer = EntryPacker(events_bytes_max)
        self._state = self._packer.state
        self._reading = Reading(position, commit_clock)
        self._machine = TransactionMachine(
            self._packer,
            self._reading,
            schemas,
            commit_clock,
            open_transaction=open_transaction,
            hindsight=hindsight,
            tells=tells,
        )
        self._xa = XaGroups(self._machine, groups)
        self._statements = Statements(self._machine, self._xa)

    @property
    def waiting(self) -> bool:
        """Whether complete transactions wait for `flush`."""
        return self._packer.waiting

    @property
    def state(self) -> State:
        """Of the open transaction."""
        return self._machine.state

    @property
    def between_transactions(self) -> bool:
        return not self.waiting and self._machine.open is None and self._state[Slot.PHASE] == Phase.OUTSIDE

    @property
    def passed(self) -> SourcePosition:
        """The position up to which everything is in a frame already given out, or had nothing to append."""
        if self._machine.again or not self.between_transactions:
            return self._reading.emitted
        return self._reading.passed(int(self._state[Slot.POS]))

    @property
    def read(self) -> SourcePosition:
        """How far events were read, inside a transaction too. For people: nothing starts there."""
        emitted = self._reading.emitted
        here = emitted.at(self._reading.file, int(self._state[Slot.POS]), turn=self._reading.turn)
        return here if here.order > emitted.order else emitted  # a stream begins with the head of its file

    @property
    def unfinished(self) -> Told | None:
        """The transaction that is open, if one is."""
        return self._machine.told(Ending.UNFINISHED) if self._machine.state is not State.OUTSIDE else None

    def feed(self, chunk: Chunk) -> Iterator[FrameContent]:
        """Takes a chunk; gives the frames that are full. Complete transactions may wait for more until `flush`."""
        if not len(chunk.data):
            return
        state = self._state
        if chunk.file:
            yield from self._use_file(chunk.file)
            state[Slot.POS] = chunk.start
        state[Slot.GAPS] = int(chunk.gaps)
        base = int(state[Slot.POS])  # of the chunk's first byte; where a source leaves events out, at or after it
        try:
            yield from self._feed(chunk.data.view())
        except BadEvent as error:
            raise error.at(base + error.offset, file=self._reading.file) from None

    def forget_tables(self) -> None:
        """Every table map is looked at again: a table may have another schema now."""
        self._machine.known_tables = np.empty(0, np.int64)

    def flush(self) -> Iterator[FrameContent]:
        """Gives out the complete transactions that wait; an open one stays."""
        yield from self._machine.flush()

    # -- the loop around the kernel --------------------------------------------------------------------------------

    def _feed(self, data: npt.NDArray[np.uint8]) -> Iterator[FrameContent]:
        data.flags.writeable = False
        try:
            events = split_events(data)
        except BadEvent as error:
            if error.offset:  # what came before it counts all the same
                yield from self._feed(data[: error.offset])
            raise
        boundaries = np.flatnonzero(events.type == EventType.FORMAT_DESCRIPTION).tolist()
        edges = sorted({0, len(events), *boundaries, *(i + 1 for i in boundaries)})
        for first, last in itertools.pairwise(edges):
            part = events.some(slice(first, last))
            fde = self._machine.fde
            if fde is not None and fde.trailer_bytes and part.type[0] != EventType.FORMAT_DESCRIPTION:
                try:
                    _verify(data, part)
                except BadEvent as error:
                    yield from self._take(data, part.some(part.offset < error.offset))
                    raise
            yield from self._take(data, part)

    def _take(self, data: npt.NDArray[np.uint8], events: Events) -> Iterator[FrameContent]:
        state, packer, machine = self._state, self._packer, self._machine
        state[Slot.EVENT_AT] = 0
        while True:
            stop = cut(
                data,
                events.offset,
                events.size,
                events.type,
                events.flags,
                events.end_pos,
                state,
                packer.out,
                packer.records,
                packer.gtids,
                packer.gtid,
                machine.known_tables,
                machine.undone,
                LEFT_OUT,
                machine.fde.trailer_bytes if machine.fde else 0,
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
            elif stop == Stop.ENTRY:
                yield from machine.flush()
            elif stop == Stop.STARTED:
                yield from machine.started()
            elif stop == Stop.SKIPPED:
                yield from machine.resumed()
            else:
                yield from machine.make_room(int(events.size[i]))

    # -- rare events -----------------------------------------------------------------------------------------------

    def _special(self, event: memoryview, events: Events, i: int) -> Iterator[FrameContent]:
        state, machine = self._state, self._machine
        kind, end_pos = int(events.type[i]), int(events.end_pos[i])
        # A server that starts in the middle of a file first sends its format description, with an end_log_pos of 0.
        artificial = bool(events.flags[i] & FLAG_ARTIFICIAL or (state[Slot.GAPS] and not end_pos))
        end = end_of(int(state[Slot.POS]), len(event), end_pos, int(events.flags[i]), int(state[Slot.GAPS]))
        if state[Slot.FROZEN]:
            end = int(state[Slot.POS])
        if kind == EventType.TABLE_MAP and machine.inside:
            yield from machine.table_map(event)
            return  # the table is known now: the kernel takes the event
        state[Slot.EVENT_AT] = i + 1
        if kind == EventType.FORMAT_DESCRIPTION:
            yield from self._format(event, artificial)
            state[Slot.POS] = int(state[Slot.POS]) if artificial else end
        elif kind == EventType.ROTATE:
            yield from self._rotate(event, artificial)
        elif kind in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2):
            self._heartbeat(end_pos)
        elif kind == EventType.QUERY:
            yield from self._statements.take(event, end)
        elif kind == EventType.EXECUTE_LOAD_QUERY:
            query = load_as_query(event, machine.need_fde().trailer_bytes)
            yield from self._statements.take(memoryview(query), end)
        elif kind in COMPRESSED_TYPES:
            yield from self._compressed(bytes(event), end)
            state[Slot.EVENT_AT] = i + 1
        elif kind == EventType.XA_PREPARE:
            yield from self._xa.prepared(event, end)
        elif kind in (EventType.MARIADB_GTID, EventType.GTID_TAGGED) and machine.state is State.OUTSIDE:
            yield from self._gtid(event, kind, end)
        elif kind == EventType.XID and machine.state in (State.RESUMING, State.LEARNING):
            yield from machine.ends_early()
        else:
            self._refuse(kind, int(events.flags[i]))
            if not artificial:
                state[Slot.POS] = end

    def _compressed(self, event: bytes, end: int) -> Iterator[FrameContent]:
        """The plain events of a compressed one, part by part. They have no offset of their own: all end where it ends."""
        state = self._state
        fde = self._machine.need_fde()
        state[Slot.POS] = end
        for part in plain_events(event, fde):
            state[Slot.FROZEN] = 1
            yield from self._take(np.frombuffer(part, np.uint8), split_events(part))
            state[Slot.FROZEN] = 0

    def _heartbeat(self, end_pos: int) -> None:
        state = self._state
        if state[Slot.PHASE] == Phase.OUTSIDE and state[Slot.GAPS]:
            state[Slot.POS] = end_of(int(state[Slot.POS]), 0, end_pos, 0, 1)

    def _gtid(self, event: memoryview, kind: int, end: int) -> Iterator[FrameContent]:
        """A GTID that the kernel does not read: of an XA group, or one with a tag."""
        machine = self._machine
        fde = machine.need_fde()
        group = ""
        if kind == EventType.GTID_TAGGED:
            tagged = parse_gtid(event, fde)
            raw = tagged.sid.bytes + tagged.number.to_bytes(8, "little")
            machine.begin(raw, tagged.tag, Phase.ANNOUNCED)
        else:
            gtid = parse_mariadb_gtid(event, fde)
            raw = pack_gtid(gtid.domain, gtid.server_id, gtid.sequence)
            machine.begin(raw, "", Phase.STANDALONE if gtid.completed_xa else Phase.PREPARING)
            group = xid_text(gtid.xid) if gtid.xid is not None and gtid.prepared_xa else ""
        self._state[Slot.POS] = end
        yield from machine.count(event)
        if group:
            yield from self._xa.start(group)

    def _format(self, event: memoryview, artificial: bool) -> Iterator[FrameContent]:
        fde = parse_format_description(event)
        if fde.trailer_bytes and not checksum_matches(event):
            raise BadEvent("its checksum does not match; the binlog is damaged here", event_type=event[4])
        if fde.table_id_bytes != 6:
            raise NotSupported(f"binlogs of {fde.server_version} are not supported: their table ids have four bytes")
        self._reading.file_begun(fde.timestamp)
        machine = self._machine
        if machine.state is not State.OUTSIDE and not artificial:
            yield from machine.abandon()
        yield from machine.flush()
        machine.fde = fde
        machine.fde_event = bytes(event)
        machine.known_tables = np.empty(0, np.int64)  # a restarted server numbers its tables anew

    def _rotate(self, event: memoryview, artificial: bool) -> Iterator[FrameContent]:
        fde = self._machine.fde or FormatDescription("", Flavour.MARIADB, 0, b"")
        rotate = parse_rotate(event, replace(fde, checksum=int(checksum_matches(event))))
        if self._state[Slot.PHASE] != Phase.OUTSIDE:
            if not artificial:
                raise BadEvent("a rotation inside a transaction", event_type=event[4])
            if rotate.file == self._reading.file:
                return
        yield from self._use_file(rotate.file)
        self._state[Slot.POS] = rotate.position

    def _use_file(self, name: str) -> Iterator[FrameContent]:
        if name == self._reading.file:
            return
        if self._machine.state is not State.OUTSIDE:
            yield from self._machine.abandon()
        self._state[Slot.FILE] = self._reading.use_file(name, waiting=self.waiting)

    def _refuse(self, kind: int, flags: int) -> None:
        """Raises unless the event may be left out."""
        where = f"{self._reading.file}:{int(self._state[Slot.POS])}"
        refuse_unsupported(kind)
        if kind == EventType.INCIDENT:
            raise SourceError(
                f"{where}: the server reports that it lost events", hint="start again with a new state_dir"
            )
        if kind in EventType._value2member_map_:
            raise BadEvent("it cannot stand here", event_type=kind)
        if not flags & _IGNORABLE:
            raise NotSupported(
                f"{where}: an event of {type_name(kind)} is not known", hint="a newer Penstock may know it"
            )


def _verify(data: npt.NDArray[np.uint8], events: Events) -> None:
    # An artificial rotation may lack the checksum that the format description promises; it carries no change.
    plain = ~((events.type == EventType.ROTATE) & (events.flags & FLAG_ARTIFICIAL != 0))
    if not plain.all():
        events = events.some(plain)
    verify_checksums(data, events)
