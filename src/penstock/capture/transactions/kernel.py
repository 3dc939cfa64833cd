"""The inner loop of cutting the event stream into transactions.

It goes over the headers of many events, copies the events that are kept, and notes where each transaction ends. It
decides the common events by itself (GTID, BEGIN, TABLE_MAP, rows, XID, COMMIT, and those that are left out) and stops
at any other, so that Python runs for rare events only. Between calls its state is one array of integers, indexed by
`Slot`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.binlog.bodies import GTID_COMPLETED_XA, GTID_PREPARED_XA, GTID_STANDALONE
from penstock.binlog.events import is_rows
from penstock.binlog.types import FLAG_ARTIFICIAL, HEADER_BYTES, EventType
from penstock.entries.format import Part
from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


class Slot(IntEnum):
    """What the kernel remembers between calls."""

    PHASE = 0
    POS = 1  # source offset after the last event
    TXN_POS = 2  # source offset where the open transaction, or its current part, starts
    OUT = 3  # bytes kept so far
    TXN_OUT = 4  # where the open transaction's bytes start among them
    EVENTS = 5  # events kept so far
    TXN_EVENTS = 6  # events kept before the open transaction
    HAS_ROWS = 7  # 1: the open transaction has changed a row
    SOURCE_EVENTS = 8  # events of the open transaction, in all its parts, but for those left out by their type
    SKIP = 9  # how many of these are in the log already, and come again because the source was reopened
    RECORDS = 10  # finished transactions
    PART = 11  # 0: the open transaction is whole so far; 1: a part of it is in the log
    FILE = 12  # index of the source file
    GAPS = 13  # 1: the source leaves events out, so end_log_pos counts where it is sane
    EVENT_AT = 14  # index of the event to look at next
    LAST_OUT = 15  # where the last event of SOURCE_EVENTS is among the kept bytes; -1: it was not kept
    PROVE = 16  # 1: stop at the start of the next transaction, to see whether it is the one that the log has a part of
    TAG = 17  # of the open transaction's GTID: 0 none, else 1 + its index
    NUMBER = 18  # of the transaction, counted from the start of the stream
    FROZEN = 19  # 1: events from inside a compressed payload, which have no offset of their own


SLOTS = len(Slot)


class Phase(IntEnum):
    OUTSIDE = 0
    INSIDE = 1  # between the start of a transaction and its commit
    STANDALONE = 2  # after a GTID that stands for the one statement that follows
    ANNOUNCED = 3  # after MySQL's GTID: BEGIN or a statement follows
    PREPARING = 4  # inside an XA group: as INSIDE, but it ends with XA_PREPARE


class Stop(IntEnum):
    """Why the kernel returned."""

    DONE = 0
    SPECIAL = 1  # the event at EVENT_AT is for Python; nothing of it was taken
    FULL = 2  # the event at EVENT_AT does not fit into the buffer
    ENTRY = 3  # a transaction ended, and there is enough for an entry; or it was cut, and its last part is here
    SKIPPED = 4  # the last event that was in the log already has been read again
    STARTED = 5  # PROVE was set, and a transaction has started


class Field(IntEnum):
    """Columns of a finished transaction's record."""

    OFFSET = 0
    LENGTH = 1
    START_POS = 2
    END_POS = 3
    FIRST_EVENT = 4
    EVENTS = 5
    FILE = 6
    PART = 7
    KEPT = 8  # 0: it changed no row and is left out
    TAG = 9


FIELDS = len(Field)

# Events that say nothing about rows; or only what a statement needs that is kept itself, such as the file of LOAD DATA.
LEFT_OUT = np.zeros(256, np.bool_)
LEFT_OUT[
    [
        EventType.STOP,
        EventType.INTVAR,
        EventType.RAND,
        EventType.USER_VAR,
        EventType.BEGIN_LOAD_QUERY,
        EventType.APPEND_BLOCK,
        EventType.DELETE_FILE,
        EventType.IGNORABLE,
        EventType.ROWS_QUERY,
        EventType.PREVIOUS_GTIDS,
        EventType.TRANSACTION_CONTEXT,
        EventType.VIEW_CHANGE,
        EventType.ANNOTATE_ROWS,
        EventType.BINLOG_CHECKPOINT,
        EventType.MARIADB_GTID_LIST,
    ]
] = True
LEFT_OUT.flags.writeable = False

_OTHER_QUERY, _BEGIN, _COMMIT = range(3)
_BEGIN_TEXT = np.frombuffer(b"BEGIN", np.uint8)
_COMMIT_TEXT = np.frombuffer(b"COMMIT", np.uint8)
_XA = GTID_PREPARED_XA | GTID_COMPLETED_XA


@kernel
def _starts_with(data: Bytes, at: Any, text: Bytes) -> bool:
    for k in range(len(text)):  # noqa: SIM110 - numba does not know all()
        if data[at + k] != text[k]:
            return False
    return True


@kernel
def _query_is(data: Bytes, at: int, size: int, trailer: int) -> int:
    """Whether the statement of a QUERY event is exactly BEGIN, exactly COMMIT, or another."""
    status = np.int64(data[at + 30]) | np.int64(data[at + 31]) << 8
    start = at + 32 + status + np.int64(data[at + 27]) + 1
    length = at + size - trailer - start
    if length == len(_BEGIN_TEXT) and _starts_with(data, start, _BEGIN_TEXT):
        return _BEGIN
    if length == len(_COMMIT_TEXT) and _starts_with(data, start, _COMMIT_TEXT):
        return _COMMIT
    return _OTHER_QUERY


@kernel
def logged_statements(  # noqa: PLR0917
    data: Bytes, offset: Ints, size: Any, kind: Bytes, trailer: int, found: Any
) -> None:
    """`found[i]`: event i is a QUERY other than BEGIN and COMMIT."""
    for i in range(len(offset)):
        bytes_here: int = np.int64(size[i])  # type: ignore[assignment]
        found[i] = kind[i] == EventType.QUERY
        if found[i] and bytes_here >= 37 + trailer:
            found[i] = _query_is(data, offset[i], bytes_here, trailer) == _OTHER_QUERY


@kernel
def end_of(pos: int, size: int, end_pos: int, flags: int, gaps: int) -> int:
    """The 64-bit source offset after an event: counted; where the source leaves events out, from its 32 bits."""
    counted = pos + size
    if gaps == 0 or end_pos == 0 or flags & FLAG_ARTIFICIAL:
        return counted
    claimed = (counted >> 32 << 32) | end_pos
    if claimed < counted:
        # Far below: the 32 bits wrapped. A little below: no event can end there, so the count is right.
        if counted - claimed < 1 << 31:
            return counted
        claimed += 1 << 32
    return claimed


@kernel
def finish(state: Ints, records: Ints, gtids: Bytes, gtid: Bytes) -> None:
    """The open transaction ends here: its record, and its bytes taken back where it changed no row."""
    n = state[Slot.RECORDS]
    kept = 1 if (state[Slot.HAS_ROWS] != 0 or state[Slot.PART] != 0) else 0
    records[n, Field.OFFSET] = state[Slot.TXN_OUT]
    records[n, Field.LENGTH] = state[Slot.OUT] - state[Slot.TXN_OUT]
    records[n, Field.START_POS] = state[Slot.TXN_POS]
    records[n, Field.END_POS] = state[Slot.POS]
    records[n, Field.FIRST_EVENT] = state[Slot.TXN_EVENTS]
    records[n, Field.EVENTS] = state[Slot.EVENTS] - state[Slot.TXN_EVENTS]
    records[n, Field.FILE] = state[Slot.FILE]
    records[n, Field.PART] = Part.LAST if state[Slot.PART] else Part.WHOLE
    records[n, Field.KEPT] = kept
    records[n, Field.TAG] = state[Slot.TAG]
    gtids[n] = gtid
    if kept == 0:
        state[Slot.OUT] = state[Slot.TXN_OUT]
        state[Slot.EVENTS] = state[Slot.TXN_EVENTS]
    state[Slot.RECORDS] = n + 1
    state[Slot.PHASE] = Phase.OUTSIDE
    state[Slot.HAS_ROWS] = 0
    state[Slot.SOURCE_EVENTS] = 0
    state[Slot.PART] = 0


@kernel
def cut(  # noqa: PLR0917
    data: Bytes,
    offset: Ints,
    size: npt.NDArray[np.uint32],
    kind: Bytes,
    flags: npt.NDArray[np.uint16],
    end_pos: npt.NDArray[np.uint32],
    state: Ints,
    out: Bytes,
    records: Ints,
    gtids: Bytes,
    gtid: Bytes,
    known_tables: Ints,
    undone: Ints,
    left_out: npt.NDArray[np.bool_],
    trailer: int,
    enough: int,
) -> int:
    """Takes events from EVENT_AT on until one of `Stop`. Kept events go to `out`, finished transactions to `records`.

    `known_tables`: ascending table ids whose table map Python has seen; another table map is SPECIAL. `undone`: the
    NUMBER of a transaction, then ascending pairs of ordinals; its events from the first to before the second are
    counted, not kept. `enough`: bytes of whole transactions at which an entry is large enough. `trailer`: bytes of checksum at the
    end of each event.
    """
    count = len(offset)
    i = state[Slot.EVENT_AT]
    while i < count:
        t = kind[i]
        # int() of an unsigned number is unsigned in a kernel, and unsigned + signed is a float there.
        bytes_here: int = np.int64(size[i])  # type: ignore[assignment]
        claimed: int = np.int64(end_pos[i])  # type: ignore[assignment]
        bits: int = np.int64(flags[i])  # type: ignore[assignment]
        at = offset[i]
        end = end_of(state[Slot.POS], bytes_here, claimed, bits, state[Slot.GAPS])
        if state[Slot.FROZEN]:
            end = state[Slot.POS]
        phase = state[Slot.PHASE]
        if left_out[t]:
            if bits & FLAG_ARTIFICIAL == 0 and (state[Slot.GAPS] == 0 or claimed != 0):
                state[Slot.POS] = end
            i += 1
            continue
        starts = False
        finishes = False
        inside = bool(phase in (Phase.INSIDE, Phase.PREPARING))
        take = False
        if is_rows(t):
            take = inside and bytes_here >= 29 + trailer
        elif t == EventType.TABLE_MAP:
            if inside and bytes_here >= 27 + trailer:
                table = np.int64(0)
                for k in range(6):
                    table |= np.int64(data[at + HEADER_BYTES + k]) << (8 * k)
                where = np.searchsorted(known_tables, table)
                take = bool(where < len(known_tables) and known_tables[where] == table)
        elif t == EventType.XID:
            take = finishes = bool(phase == Phase.INSIDE)
        elif t == EventType.MARIADB_GTID:
            flags2 = data[at + 31] if bytes_here >= 38 else np.uint8(0xFF)
            take = starts = bool(phase == Phase.OUTSIDE and flags2 & _XA == 0)
            if take:
                inside = bool(flags2 & GTID_STANDALONE == 0)
        elif t in (EventType.GTID, EventType.ANONYMOUS_GTID):
            take = starts = bool(phase == Phase.OUTSIDE and bytes_here >= 44 + trailer)
            inside = False
        elif t == EventType.QUERY and bytes_here >= 37 + trailer:
            what = _query_is(data, at, bytes_here, trailer)
            if what == _BEGIN and phase in (Phase.OUTSIDE, Phase.ANNOUNCED):
                take = inside = True
                starts = bool(phase == Phase.OUTSIDE)
            elif what == _COMMIT and phase == Phase.INSIDE:
                take = finishes = True
        if not take or (finishes and state[Slot.SKIP] > 0):
            state[Slot.EVENT_AT] = i  # a transaction that ends before what the log has of it is for Python, too
            return Stop.SPECIAL
        keep = True
        if len(undone) and not starts and undone[0] == state[Slot.NUMBER]:
            keep = bool(np.searchsorted(undone[1:], state[Slot.SOURCE_EVENTS], side="right") % 2 == 0)
        if keep and state[Slot.OUT] + bytes_here > len(out):
            # Nothing has changed yet: the same event is decided again once the buffer has space.
            state[Slot.EVENT_AT] = i
            return Stop.FULL
        if starts:
            state[Slot.TXN_POS] = state[Slot.POS]
            state[Slot.TXN_OUT] = state[Slot.OUT]
            state[Slot.TXN_EVENTS] = state[Slot.EVENTS]
            state[Slot.HAS_ROWS] = 0
            state[Slot.SOURCE_EVENTS] = 0
            state[Slot.TAG] = 0
            state[Slot.NUMBER] += 1
            gtid[:] = 0
            if t == EventType.MARIADB_GTID:  # domain u32, server u32, sequence u64
                copy_bytes(gtid, 0, data, at + 27, 4)
                copy_bytes(gtid, 4, data, at + 5, 4)
                copy_bytes(gtid, 8, data, at + HEADER_BYTES, 8)
            elif t == EventType.GTID:  # UUID, number u64
                copy_bytes(gtid, 0, data, at + 20, 24)
            if inside:
                state[Slot.PHASE] = Phase.INSIDE
            else:
                state[Slot.PHASE] = Phase.STANDALONE if t == EventType.MARIADB_GTID else Phase.ANNOUNCED
        elif inside and phase == Phase.ANNOUNCED:
            state[Slot.PHASE] = Phase.INSIDE
        state[Slot.LAST_OUT] = -1
        if keep:
            state[Slot.LAST_OUT] = state[Slot.OUT]
            copy_bytes(out, state[Slot.OUT], data, at, bytes_here)
            state[Slot.OUT] += bytes_here
            state[Slot.EVENTS] += 1
            if is_rows(t):
                state[Slot.HAS_ROWS] = 1
        state[Slot.SOURCE_EVENTS] += 1
        state[Slot.POS] = end
        i += 1
        if starts and state[Slot.PROVE] != 0:
            state[Slot.EVENT_AT] = i
            return Stop.STARTED
        if state[Slot.SKIP] > 0:
            state[Slot.SKIP] -= 1
            if state[Slot.SKIP] == 0:
                state[Slot.EVENT_AT] = i
                return Stop.SKIPPED
        if finishes:
            was_cut = state[Slot.PART] != 0
            finish(state, records, gtids, gtid)
            if was_cut or state[Slot.OUT] >= enough or state[Slot.RECORDS] >= len(records):
                state[Slot.EVENT_AT] = i
                return Stop.ENTRY
    state[Slot.EVENT_AT] = i
    return Stop.DONE
