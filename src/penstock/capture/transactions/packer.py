"""Packs kept events into entries: the buffer that the kernel fills, and the records of finished transactions.

The buffer holds finished transactions, then the open one. A finished run is taken out as one entry; an open transaction
that does not fit is taken out part by part, and each further part begins with the table maps in force. It knows nothing
of positions, states or schemas: that is the machine's (machine.py).
"""

from __future__ import annotations

from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from penstock.binlog.events import maps_in_force
from penstock.capture.transactions.buffers import Buffers
from penstock.capture.transactions.kernel import FIELDS, SLOTS, Field, Phase, Slot, finish
from penstock.entries.format import TXN_DTYPE, Kind, Part, TxnArray
from penstock.files import Buffer

RECORDS_MAX = 1 << 16  # transactions in an entry

_COLUMNS = (
    (Field.OFFSET, "offset"),
    (Field.LENGTH, "length"),
    (Field.START_POS, "start_pos"),
    (Field.END_POS, "end_pos"),
    (Field.FIRST_EVENT, "first_event"),
    (Field.EVENTS, "events"),
    (Field.FILE, "file"),
    (Field.FILE, "end_file"),
    (Field.PART, "part"),
    (Field.TAG, "tag"),
)


class FinishedRun(NamedTuple):
    """Finished transactions, taken out of the buffer. `table` and `events`: those that are kept, without commit_ts."""

    table: TxnArray
    events: memoryview
    gtids: npt.NDArray[np.uint8]  # of all, in order, the ones left out too
    tags: npt.NDArray[np.int64]
    last_file: int
    last_end_pos: int
    continued: bool  # the first one began in an earlier entry


class Mark(NamedTuple):
    """A place in the open transaction to go back to. Valid until a part of it is taken out."""

    out: int
    events: int
    has_rows: int
    source_events: int
    parts: int


class EntryPacker:
    """The buffer and the records. `state` is the kernel's, and is kept in step."""

    def __init__(self, events_bytes_max: int) -> None:
        self._buffers = Buffers(events_bytes_max)
        self.state = np.zeros(SLOTS, np.int64)
        self.out = self._buffers.take()
        self.records = np.zeros((RECORDS_MAX, FIELDS), np.int64)
        self.gtids = np.zeros((RECORDS_MAX, 24), np.uint8)
        self.gtid = np.zeros(24, np.uint8)
        self._repeated = 0  # table maps at the head of the buffer that are in the last part already
        self._parts = 0  # taken out so far, of any transaction

    @property
    def waiting(self) -> bool:
        """Whether finished transactions are in the buffer."""
        return bool(self.state[Slot.RECORDS])

    @property
    def open_events(self) -> int:
        """How many events of the open transaction are in the buffer, without repeated table maps."""
        return int(self.state[Slot.EVENTS] - self.state[Slot.TXN_EVENTS]) - self._repeated

    def fits(self, size: int) -> bool:
        return int(self.state[Slot.OUT]) + size <= len(self.out)

    def grow(self, size: int) -> None:
        """A larger buffer, for an event that alone exceeds an entry: it gets one with its table maps only."""
        used = int(self.state[Slot.OUT])
        larger = np.empty(used + size, np.uint8)
        larger[:used] = self.out[:used]
        self.out = larger

    def last_checksum(self) -> int:
        """CRC32C of the last event that was counted. Python notes it for those that are not kept."""
        at = int(self.state[Slot.LAST_OUT])
        assert at >= 0
        return int(google_crc32c.value(self.out[at : int(self.state[Slot.OUT])].tobytes()))

    # -- finished transactions -------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The open transaction is committed."""
        finish(self.state, self.records, self.gtids, self.gtid)

    def finish_empty(self) -> None:
        """The open transaction ends, and nothing of it is kept. Its record keeps GTIDs and offsets in order."""
        self.drop_open()
        self.state[Slot.HAS_ROWS] = self.state[Slot.PART] = 0
        self.finish()

    def take_finished(self) -> FinishedRun | None:
        """The finished transactions; the bytes of an open transaction move to the next buffer."""
        state = self.state
        count = int(state[Slot.RECORDS])
        if not count:
            return None
        inside = state[Slot.PHASE] != Phase.OUTSIDE
        whole = int(state[Slot.TXN_OUT] if inside else state[Slot.OUT])
        records = self.records[:count]
        kept = records[:, Field.KEPT] == 1
        table = np.zeros(int(kept.sum()), TXN_DTYPE)
        for column, name in _COLUMNS:
            table[name] = records[kept, column]
        gtids = self.gtids[:count].copy()
        table["gtid"] = np.ascontiguousarray(gtids[kept]).view("V24").reshape(-1)
        run = FinishedRun(
            table,
            self.out[:whole].data,
            gtids,
            records[:, Field.TAG].copy(),
            int(records[-1, Field.FILE]),
            int(records[-1, Field.END_POS]),
            bool((records[:, Field.PART] == Part.LAST).any()),
        )
        self._move_tail(whole)
        return run

    def _move_tail(self, whole: int) -> None:
        """A new buffer with the bytes after `whole`, because the old buffer now belongs to a frame."""
        state = self.state
        tail = self.out[whole : int(state[Slot.OUT])]
        self.out = self._buffers.take(len(tail))
        self.out[: len(tail)] = tail
        if state[Slot.PHASE] == Phase.OUTSIDE:
            state[Slot.EVENTS] = state[Slot.TXN_EVENTS] = 0
        else:
            state[Slot.EVENTS] -= state[Slot.TXN_EVENTS]
        if state[Slot.LAST_OUT] >= 0:
            state[Slot.LAST_OUT] -= whole
        state[Slot.TXN_EVENTS] = state[Slot.TXN_OUT] = state[Slot.RECORDS] = 0
        state[Slot.OUT] = len(tail)
        self._repeated = 0  # they were at the head of the last part, which is finished now

    # -- the open transaction --------------------------------------------------------------------------------------

    def open_record(self, part: Part, kind: Kind, commit_ts: int) -> TxnArray:
        """The record of what the buffer holds: the open transaction alone."""
        state = self.state
        table = np.zeros(1, TXN_DTYPE)
        table["length"] = state[Slot.OUT]
        table["commit_ts"] = commit_ts
        table["start_pos"] = state[Slot.TXN_POS]
        table["end_pos"] = state[Slot.POS]
        table["events"] = state[Slot.EVENTS]
        table["part"] = part
        table["kind"] = kind
        table["tag"] = state[Slot.TAG]
        table["gtid"] = np.void(self.gtid.tobytes())
        return table

    def open_bytes(self) -> Buffer:
        return self.out[: int(self.state[Slot.OUT])].data

    def own_bytes(self) -> tuple[bytes, int]:
        """The open transaction's events in the buffer and their number; none if only repeated table maps are there."""
        if self._repeated:
            return b"", 0
        return bytes(self.open_bytes()), int(self.state[Slot.EVENTS])

    def keep_maps_only(self) -> None:
        """What the buffer held is in the log: a new one, with the table maps in force."""
        state = self.state
        maps = maps_in_force(self.out[: int(state[Slot.OUT])])
        self.out = self._buffers.take(sum(map(len, maps)))
        at = 0
        for table_map in maps:
            self.out[at : at + len(table_map)] = np.frombuffer(table_map, np.uint8)
            at += len(table_map)
        self._repeated = len(maps)
        self._parts += 1
        state[Slot.OUT] = at
        state[Slot.EVENTS] = len(maps)
        state[Slot.TXN_EVENTS] = state[Slot.TXN_OUT] = 0
        state[Slot.TXN_POS] = state[Slot.POS]

    def keep(self, event: Buffer) -> None:
        """One more event of the open transaction, for which there is space. It counts as a change."""
        state = self.state
        at, size = int(state[Slot.OUT]), len(event)
        self.out[at : at + size] = np.frombuffer(event, np.uint8)
        state[Slot.LAST_OUT] = at
        state[Slot.OUT] = at + size
        state[Slot.EVENTS] += 1
        state[Slot.HAS_ROWS] = 1

    def mark(self) -> Mark:
        state = self.state
        return Mark(
            int(state[Slot.OUT] - state[Slot.TXN_OUT]),
            int(state[Slot.EVENTS] - state[Slot.TXN_EVENTS]),
            int(state[Slot.HAS_ROWS]),
            int(state[Slot.SOURCE_EVENTS]),
            self._parts,
        )

    def go_back(self, mark: Mark) -> bool:
        """Drops what came after the mark. False if a part was taken out since: then nothing is changed."""
        state = self.state
        if mark.parts != self._parts:
            return False
        state[Slot.OUT] = state[Slot.TXN_OUT] + mark.out
        state[Slot.EVENTS] = state[Slot.TXN_EVENTS] + mark.events
        state[Slot.HAS_ROWS] = mark.has_rows
        return True

    def drop_open(self) -> None:
        """Drops what the buffer holds of the open transaction."""
        state = self.state
        state[Slot.OUT] = state[Slot.TXN_OUT]
        state[Slot.EVENTS] = state[Slot.TXN_EVENTS]
        self._repeated = 0

    def clear(self) -> None:
        """A new, empty buffer, because the old one, with the open transaction alone, belongs to a frame."""
        self.out = self._buffers.take()
        self._repeated = 0
        for slot in (Slot.OUT, Slot.EVENTS, Slot.TXN_OUT, Slot.TXN_EVENTS):
            self.state[slot] = 0

    def leave(self) -> None:
        """No transaction is open any more."""
        state = self.state
        state[Slot.PHASE] = Phase.OUTSIDE
        state[Slot.HAS_ROWS] = state[Slot.SOURCE_EVENTS] = state[Slot.PART] = state[Slot.SKIP] = 0
