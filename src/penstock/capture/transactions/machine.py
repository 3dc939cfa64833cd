"""The transaction machine: which state the open transaction is in, and what each event does to it.

| state | meaning |
|---|---|
| OUTSIDE | no transaction is open |
| ANNOUNCED | its GTID was read; BEGIN, XA START or a statement follows |
| OPEN | all of it that was read is in the buffer |
| CUT | a part of it is in the log, because it does not fit into an entry |
| RESUMING | a part of it is in the log, and comes again because the source was opened again |
| PREPARING | an XA group, open or cut: it ends with XA_PREPARE |
| LEARNING | its parts are void, because it takes back what is in the log; the rest is read only to know what else |

| outcome | how it comes about | what the log gets |
|---|---|---|
| COMMITTED | XID, COMMIT, a DDL, XA COMMIT | the transaction, or its last part |
| HELD | XA_PREPARE | held entries; at XA COMMIT they are appended again as a transaction |
| EMPTY | it ends without a row that is kept | nothing; its GTID and its end are noted |
| ABANDONED | a new file begins inside it: the server died, and rolled it back | nothing, or a void record if it was cut |
| VOID | it was cut, and is rolled back or is not what the source has now | a void record: readers pass over its parts |

Every method that may give out frames is a generator of them. The position of a frame is the end of the last complete
transaction, or the start of the open one: a restart reads from there, and skips what is in the log already.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

import google_crc32c
import numpy as np
import numpy.typing as npt

from penstock.binlog.bodies import FormatDescription, Query
from penstock.binlog.types import HEADER_BYTES
from penstock.capture.schemas import SchemaTracker
from penstock.capture.transactions.frame_content import Ending, FrameContent, Told
from penstock.capture.transactions.kernel import Phase, Slot
from penstock.capture.transactions.packer import EntryPacker
from penstock.capture.transactions.reading import Reading
from penstock.capture.transactions.telling import told_of
from penstock.commit_ts import CommitClock
from penstock.entries.format import TXN_DTYPE, EntryHeader, Kind, Part, TxnArray, encode_entry, gtid_text
from penstock.errors import Transient
from penstock.files import Buffer
from penstock.schema.model import DdlType, TableSchema
from penstock.sources.position import OpenTransaction
from penstock.sources.source import SourceError

KNOWN_TABLES_MAX = 1024  # a server that opens tables again and again gives them new ids for ever
_ALL = 1 << 62  # more events than a transaction has


class State(Enum):
    OUTSIDE = "outside"
    ANNOUNCED = "announced"
    OPEN = "open"
    CUT = "cut"
    RESUMING = "resuming"
    PREPARING = "preparing"
    LEARNING = "learning"


@dataclass(frozen=True, slots=True)
class Hindsight:
    """What is known of a transaction before it is read again.

    `undone`: what its ROLLBACK TOs take back, as ascending pairs of ordinals of its source events, the first of a pair
    included, the second not. `one_phase`: an XA group that commits without having been prepared.
    """

    gtid: str
    file: str
    start_pos: int
    undone: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    one_phase: bool = False


class ReadAgain(Transient):
    """The open transaction is void, and must be read again from its start."""

    def __init__(self, message: str, hindsight: Hindsight | None = None) -> None:
        super().__init__(message)
        self.hindsight = hindsight


class TransactionMachine:
    """The open transaction of one stream. `packer.state` is shared with the kernel."""

    def __init__(
        self,
        packer: EntryPacker,
        reading: Reading,
        schemas: SchemaTracker,
        clock: CommitClock,
        *,
        open_transaction: OpenTransaction | None = None,
        hindsight: Hindsight | None = None,
        tells: bool = False,
    ) -> None:
        self.packer = packer
        self.tells = tells  # every ending is told, and logged statements are kept, for those who look at a stream
        self.reading = reading
        self.clock = clock
        self.open = open_transaction
        self.fde: FormatDescription | None = None
        self.fde_event = b""
        self.known_tables = np.empty(0, np.int64)
        self.undone = np.empty(0, np.int64)  # of the open transaction, as the kernel takes it
        self.xid = ""  # of the XA group whose rows are coming
        self.again = False  # the source must be read again from the last frame's position
        self.schemas = schemas
        self._hindsight = hindsight
        self._learned: Hindsight | None = None  # in the state LEARNING
        self._taken_back = array("q")
        self._one_phase_of = -1  # the number of an XA group that is known to commit with its own last event
        self._checksum = 0  # of the last counted event, where the packer does not have it
        self._start = 0  # offset where the open transaction starts
        packer.state[Slot.POS] = reading.emitted.pos
        packer.state[Slot.PROVE] = 1

    @property
    def state(self) -> State:
        slots = self.packer.state
        phase = int(slots[Slot.PHASE])
        if phase == Phase.OUTSIDE:
            return State.OUTSIDE
        if self._learned is not None:
            return State.LEARNING
        if slots[Slot.SKIP]:
            return State.RESUMING
        if phase == Phase.PREPARING:
            return State.PREPARING
        if self.open is not None:
            return State.CUT
        return State.OPEN if phase == Phase.INSIDE else State.ANNOUNCED

    @property
    def inside(self) -> bool:
        return int(self.packer.state[Slot.PHASE]) in (Phase.INSIDE, Phase.PREPARING)

    @property
    def one_phase(self) -> bool:
        """Whether the open transaction is an XA group that is known to commit with its own last event."""
        return self._one_phase_of == int(self.packer.state[Slot.NUMBER])

    # -- giving out frames -----------------------------------------------------------------------------------------

    def flush(self) -> Iterator[FrameContent]:
        """The finished transactions as one frame; the open one stays."""
        continued = self.open
        run = self.packer.take_finished()
        if run is None:
            return
        table = run.table
        if run.continued:
            assert continued is not None
            self.open = None
        if len(table):
            own = int(run.continued)  # the last part keeps the commit_ts of the first
            table["commit_ts"][own:] = self.clock.take(len(table) - own)
            if continued is not None and own:
                table["commit_ts"][0] = continued.commit_ts
        self.reading.note(self.need_fde().flavour, run.gtids, run.tags)
        position = self.reading.at_end(run.last_end_pos, run.last_file)
        data = self.entry(table, [run.events]) if len(table) else []
        self.reading.forget_files()
        self.packer.state[Slot.FILE] = 0
        self._forget_tags()
        if data:
            events = int(table["events"].sum())
            yield FrameContent(data, position, self.open, transactions=len(table), events=events)

    def make_room(self, size: int) -> Iterator[FrameContent]:
        """The next event, of `size` bytes, does not fit into the buffer."""
        packer = self.packer
        if packer.waiting or not packer.open_events:
            yield from self.flush()
            if not packer.fits(size) and not packer.open_events:
                packer.grow(size)
        elif packer.state[Slot.SKIP]:
            packer.keep_maps_only()  # these events are in the log already: nothing to give out
        else:
            yield self.cut()

    def cut(self) -> FrameContent:
        """The open transaction so far, as a part; the next part starts with the table maps in force."""
        packer = self.packer
        commit_ts, part = self.next_part()
        kind = Kind.HELD if self.xid else Kind.ROWS
        table = packer.open_record(part, kind, commit_ts)
        return self.append_part(table, [packer.open_bytes()], int(table["events"][0]))

    def next_part(self) -> tuple[int, Part]:
        """commit_ts and place of the next part that is not the last."""
        if self.open is None:
            return self.clock.next_open(), Part.FIRST
        return self.open.commit_ts, Part.MIDDLE

    def append_part(
        self, table: TxnArray, events: list[Buffer], count: int, made: tuple[TableSchema, ...] = ()
    ) -> FrameContent:
        """A part that is not the last, of `count` events. What the buffer held is in the log from here on."""
        packer, state = self.packer, self.packer.state
        if self.open is None:
            self._start = int(state[Slot.TXN_POS])
            position = self.reading.at_start(self._start)
        else:
            position = self.reading.stamp()
        before = self.open
        self.open = OpenTransaction(
            int(table["commit_ts"][0]),
            packer.gtid.tobytes().hex(),
            self.reading.file,
            self._start if before is None else before.start_pos,
            int(state[Slot.SOURCE_EVENTS]),
            self._last_checksum(),
            int(state[Slot.POS]),
            entries=before.entries + 1 if before else 1,
            source=position.source,
            held=self.xid,
            restore=(before.restore if before else ()) + tuple(self._restore(table) for table in made),
            after=before.after if before else "",
        )
        data = self.entry(table, events)
        packer.keep_maps_only()
        state[Slot.PART] = 1
        return FrameContent(data, position, self.open, made, events=count)

    def entry(self, table: TxnArray, events: list[Buffer]) -> list[Buffer]:
        fde = self.need_fde()
        reading = self.reading
        source, files, tags = reading.emitted.source, tuple(reading.files), tuple(reading.tags)
        header = EntryHeader(fde.flavour, bool(fde.trailer_bytes), source, files, self.fde_event, tags)
        return encode_entry(header, table, events)

    # -- the transaction that the log has a part of ----------------------------------------------------------------

    def started(self) -> Iterator[FrameContent]:
        """The first transaction of the stream has started: is it the one that the log has a part of, or a new one?"""
        state = self.packer.state
        state[Slot.PROVE] = 0
        gtid = self.packer.gtid.tobytes()
        start, file = int(state[Slot.TXN_POS]), self.reading.file
        tag = self.reading.tags[int(state[Slot.TAG]) - 1] if state[Slot.TAG] else ""
        flavour = self.need_fde().flavour
        if self.reading.seen(flavour, gtid, tag):
            raise SourceError(
                f"{file}:{start} holds {gtid_text(flavour, gtid, tag)}, which is in the log already: the source is not the one "
                f"that the log was filled from, or it was reset (RESET MASTER). Nothing was skipped",
                hint="start with a new state_dir, or let the source continue from the log's position",
            )
        again = self._hindsight
        if (
            again is not None
            and again.gtid == gtid.hex()
            and (any(gtid) or (again.file, again.start_pos) == (file, start))
        ):
            self._one_phase_of = int(state[Slot.NUMBER]) if again.one_phase else -1
            if len(again.undone):
                self.undone = np.insert(again.undone, 0, state[Slot.NUMBER])
        known = self.open
        if known is None:
            return
        same = (known.gtid, known.file, known.source) == (gtid.hex(), file, self.reading.emitted.source)
        if not same or (not any(gtid) and known.start_pos != start):
            yield self._void("the source has another transaction there now")
        elif not known.copies:
            state[Slot.SKIP] = known.appended - int(state[Slot.SOURCE_EVENTS])

    def resumed(self) -> Iterator[FrameContent]:
        """The last event that the log has was read again: the transaction goes on if it is that event."""
        known = self.open
        assert known is not None
        if self._last_checksum() != known.checksum:
            yield from self.void_and_again("its events are not those in the log")
        self.packer.keep_maps_only()
        self.packer.state[Slot.PART] = 1

    def ends_early(self, *, committed: bool = True, one_phase: bool = False) -> Iterator[FrameContent]:
        """The transaction ends before the last event that the log has of it, or while it is read to learn of it."""
        learned, self._learned = self._learned, None
        if learned is None:
            yield from self.void_and_again("it is shorter than what is in the log")
            return
        self.known_tables = np.empty(0, np.int64)  # their schemas were not looked at
        if not committed:
            self.packer.state[Slot.SKIP] = 0  # void it is, and over
            return
        self.again = True
        self._leave()
        undone = np.array(self._taken_back, np.int64)
        again = replace(learned, undone=undone, one_phase=one_phase or learned.one_phase)
        raise ReadAgain("the open transaction is read again, without what it takes back", again)

    def abandon(self) -> Iterator[FrameContent]:
        """A new file begins: the server died in the open transaction, and rolled it back."""
        told = self.told(Ending.ABANDONED) if self.tells else None
        if self.open is not None and self.state is not State.OUTSIDE:
            yield self._void("the server gave it up")
        self.packer.state[Slot.PROVE] |= self._hindsight is not None  # its GTID may come again, for what is known
        self.packer.drop_open()
        self._leave()
        if told is not None:
            yield from self.tell(told)

    def _void(self, why: str) -> FrameContent:
        """A record that takes back the parts in the log. The open transaction stays as it is in the buffer."""
        known = self.open
        assert known is not None
        table = np.zeros(1, TXN_DTYPE)
        table["part"], table["kind"] = Part.LAST, Kind.VOID
        table["commit_ts"] = known.commit_ts
        table["start_pos"], table["end_pos"] = known.start_pos, known.end_pos
        table["gtid"] = np.void(bytes.fromhex(known.gtid))
        self.open = None
        restored = self._restored(known)
        position = self.reading.stamp()
        header = EntryHeader(
            self.need_fde().flavour, bool(self.need_fde().trailer_bytes), position.source, (known.file,), self.fde_event
        )
        reason = f"transaction at {known.file}:{known.start_pos}: {why}"
        return FrameContent(
            encode_entry(header, table, []), position, None, restored, void=known.commit_ts, void_reason=reason
        )

    def void_and_learn(self, taken_back: array[int]) -> Iterator[FrameContent]:
        """A ROLLBACK TO takes back something that is in the log. The transaction is read to its end, nothing of it is kept, and
        then it is read again, once. `taken_back` is what is known by now, and grows until then."""
        state = self.packer.state
        self._learned, self._taken_back = self.hindsight(), taken_back
        yield self._void("it goes back to a savepoint that is in the log")
        self.packer.drop_open()
        state[Slot.PART] = state[Slot.HAS_ROWS] = 0
        state[Slot.SKIP] = _ALL
        self.undone = np.array([state[Slot.NUMBER], 0, _ALL], np.int64)

    def void_and_again(self, why: str, hindsight: Hindsight | None = None) -> Iterator[FrameContent]:
        yield self._void(why)
        self.again = True
        self.packer.drop_open()
        self._leave()
        raise ReadAgain(f"the open transaction is read again: {why}", hindsight)

    def is_undone(self, ordinal: int) -> bool:
        """Whether this source event of the open transaction is known to be taken back."""
        mine = len(self.undone) and self.undone[0] == self.packer.state[Slot.NUMBER]
        return bool(mine and np.searchsorted(self.undone[1:], ordinal, side="right") % 2)

    def hindsight(self, *, one_phase: bool = False) -> Hindsight:
        """What is known now of the transaction that the log has a part of."""
        known = self.open
        assert known is not None
        return Hindsight(known.gtid, known.file, known.start_pos, one_phase=one_phase or self.one_phase)

    def _restore(self, table: TableSchema) -> str:
        """What the table was before the open transaction: put back if the transaction becomes void."""
        before = self.schemas.in_force(table.schema, table.table)
        if before is None:
            before = replace(table, columns=(), query="", ddl_type=DdlType.DROP_TABLE)
        return before.to_json()

    def _restored(self, known: OpenTransaction) -> tuple[TableSchema, ...]:
        if not known.restore:
            return ()
        version = self.clock.next()
        return tuple(replace(TableSchema.from_json(text), version=version) for text in known.restore)

    # -- events ----------------------------------------------------------------------------------------------------

    def begin_without_gtid(self, phase: Phase) -> Iterator[FrameContent]:
        """A transaction starts with a statement that no GTID event announced, as on servers that have none."""
        self.begin(b"", "", phase)
        if self.packer.state[Slot.PROVE]:
            yield from self.started()

    def begin(self, gtid: bytes, tag: str, phase: Phase) -> None:
        """A transaction starts, with a GTID event that the kernel does not read."""
        state = self.packer.state
        state[Slot.TXN_POS] = state[Slot.POS]
        state[Slot.TXN_OUT] = state[Slot.OUT]
        state[Slot.TXN_EVENTS] = state[Slot.EVENTS]
        state[Slot.HAS_ROWS] = state[Slot.SOURCE_EVENTS] = 0
        state[Slot.TAG] = self.reading.tag_index(tag)
        state[Slot.NUMBER] += 1
        state[Slot.PHASE] = phase
        self.packer.gtid[:] = np.frombuffer(gtid.ljust(24, b"\0"), np.uint8)

    def count(self, event: Buffer) -> Iterator[FrameContent]:
        """An event of the open transaction that is not kept: counted, so that a restart finds its place again."""
        state = self.packer.state
        state[Slot.SOURCE_EVENTS] += 1
        state[Slot.LAST_OUT] = -1
        self._checksum = int(google_crc32c.value(bytes(event)))
        if state[Slot.PROVE]:
            yield from self.started()
        elif state[Slot.SKIP]:
            state[Slot.SKIP] -= 1
            if not state[Slot.SKIP]:
                yield from self.resumed()

    def table_map(self, event: memoryview) -> Iterator[FrameContent]:
        """A table map whose id was not seen yet: the table's schema, in a frame before its rows, if it is not known."""
        learning = self.state is State.LEARNING
        made = () if learning else self.schemas.after_table_map(event, self.need_fde(), self.clock.peek())
        if made:
            # Older rows go first: their shape is the one before. The frame stands where this transaction starts.
            yield from self.flush()
            version = self.clock.next()
            made = tuple(replace(table, version=version) for table in made)
            if self.open is None:
                position = self.reading.at_start(int(self.packer.state[Slot.TXN_POS]))
            else:
                position = self.reading.stamp()
            yield FrameContent([], position, self.open, made)
        table_id = int.from_bytes(event[HEADER_BYTES : HEADER_BYTES + 6], "little")
        known = self.known_tables if len(self.known_tables) < KNOWN_TABLES_MAX else np.empty(0, np.int64)
        self.known_tables = np.insert(known, int(np.searchsorted(known, table_id)), table_id)

    def commit(self) -> Iterator[FrameContent]:
        """The transaction is committed. The last part of a cut one is given out at once: `open` never outlives it."""
        if self.packer.state[Slot.RECORDS] == len(self.packer.records):
            yield from self.flush()
        self.packer.finish()
        self._leave()
        if self.open is not None:
            yield from self.flush()

    def roll_back(self) -> Iterator[FrameContent]:
        """The transaction never happened. Rows of tables without transactions are in groups of their own."""
        if self.open is None:
            yield from self.end_empty()
            return
        self.packer.drop_open()
        frame = self._void("it was rolled back")
        yield from self.end_empty()
        yield from self.flush()
        yield replace(frame, position=self.reading.stamp())

    def end_empty(self) -> Iterator[FrameContent]:
        """Nothing is kept of the transaction; its GTID and end are noted in their order."""
        state = self.packer.state
        if state[Slot.PHASE] == Phase.OUTSIDE:
            return
        if state[Slot.RECORDS] == len(self.packer.records):
            yield from self.flush()
        self.packer.finish_empty()
        self._leave()

    def end_noted(self) -> None:
        """The open transaction, alone in the buffer, is in a frame of its own: its GTID counts from here on."""
        state = self.packer.state
        tags = np.array([state[Slot.TAG]], np.int64)
        self.reading.note(self.need_fde().flavour, self.packer.gtid[None, :].copy(), tags)
        self.packer.clear()
        self.open = None
        self._leave()
        self._forget_tags()

    # -- for those who look at a stream ----------------------------------------------------------------------------

    def told(self, ending: Ending, event: Buffer = b"", *, xid: str = "", query: Query | None = None) -> Told:
        """What is to be said of the open transaction, which ends, or of the statement that `event` is."""
        return told_of(self, self._learned.start_pos if self._learned else None, ending, event, xid, query)

    def tell(self, told: Told) -> Iterator[FrameContent]:
        """After everything that ended before."""
        yield from self.flush()
        yield FrameContent([], self.reading.stamp(), self.open, told=told)

    def keep(self, event: Buffer) -> Iterator[FrameContent]:
        """An event of the open transaction that the kernel does not know, and that is to be in its entry."""
        while not self.packer.fits(len(event)):
            yield from self.make_room(len(event))
        self.packer.keep(event)

    # -- small things ----------------------------------------------------------------------------------------------

    def need_fde(self) -> FormatDescription:
        if self.fde is None:
            raise SourceError("the source sent events before its format description")
        return self.fde

    def _forget_tags(self) -> None:
        """The buffer holds the open transaction alone: only its tag is needed."""
        state = self.packer.state
        inside = state[Slot.PHASE] != Phase.OUTSIDE
        self.reading.tags = [self.reading.tags[int(state[Slot.TAG]) - 1]] if inside and state[Slot.TAG] else []
        state[Slot.TAG] = len(self.reading.tags)

    def _last_checksum(self) -> int:
        return self.packer.last_checksum() if self.packer.state[Slot.LAST_OUT] >= 0 else self._checksum

    def _leave(self) -> None:
        self.packer.leave()
        self._learned = None
        self.xid = ""
        self.undone = np.empty(0, np.int64)
