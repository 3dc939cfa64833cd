"""The inner loop of cutting: goes over the headers of many events, copies what is kept, notes where transactions end.

It decides the common events by itself (GTID, BEGIN, TABLE_MAP, rows, XID, COMMIT, and those that are left out) and stops at
anything else, so that Python sees only what is rare. State lives in one array of integers, `Slot`, between calls.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile import kernel

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


class Slot(IntEnum):
    """What the kernel remembers between calls."""

    PHASE = 0
    POS = 1  # source offset after the last event
    TXN_POS = 2  # source offset where the transaction, or its part, starts
    OUT = 3  # bytes kept so far
    TXN_OUT = 4  # where the open transaction's bytes start among them
    EVENTS = 5  # events kept so far
    TXN_EVENTS = 6  # events kept before the open transaction
    HAS_ROWS = 7
    SOURCE_EVENTS = 8  # kept events of the open transaction, in all its parts, repeated table maps not counted
    SKIP = 9  # of these, how many are in the log already and are read again
    RECORDS = 10  # finished transactions
    PART = 11  # 0: the open transaction is whole so far; 1: a part of it is in the log
    FILE = 12
    GAPS = 13  # the source leaves events out: trust end_log_pos where it is sane
    EVENT_AT = 14  # index of the event to look at next


SLOTS = 15


class Phase(IntEnum):
    OUTSIDE = 0
    INSIDE = 1  # between the start of a transaction and its commit
    STANDALONE = 2  # after a GTID that stands for the one statement that follows
    ANNOUNCED = 3  # after MySQL's GTID: BEGIN or a statement follows


class Stop(IntEnum):
    """Why the kernel came back."""

    DONE = 0
    SPECIAL = 1  # the event at EVENT_AT is for Python; nothing of it was taken
    FULL = 2  # the event at EVENT_AT does not fit into the buffer
    LARGE_ENOUGH = 3  # a transaction ended and there is enough for an entry
    SKIPPED = 4  # the last event that was in the log already has been read again


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


FIELDS = 9

# Events that say nothing about rows: STOP, INTVAR, RAND, USER_VAR, IGNORABLE, ROWS_QUERY, PREVIOUS_GTIDS,
# TRANSACTION_CONTEXT, VIEW_CHANGE, ANNOTATE_ROWS, BINLOG_CHECKPOINT, MariaDB's GTID list.
LEFT_OUT = np.zeros(256, np.bool_)
LEFT_OUT[[3, 5, 13, 14, 28, 29, 35, 36, 37, 160, 161, 163]] = True
LEFT_OUT.flags.writeable = False


@kernel
def _query_is(data: Bytes, at: int, size: int, trailer: int) -> int:
    """1 for BEGIN, 2 for COMMIT, 0 for anything else."""
    status = np.int64(data[at + 30]) | np.int64(data[at + 31]) << 8
    start = at + 32 + status + np.int64(data[at + 27]) + 1
    length = at + size - trailer - start
    if length == 5 and data[start] == 66 and data[start + 1] == 69 and data[start + 2] == 71 and data[start + 3] == 73:
        return 1 if data[start + 4] == 78 else 0
    if (
        length == 6
        and data[start] == 67
        and data[start + 1] == 79
        and data[start + 2] == 77
        and data[start + 3] == 77
        and data[start + 4] == 73
        and data[start + 5] == 84
    ):
        return 2
    return 0


@kernel
def end_of(pos: int, size: int, end_pos: int, flags: int, gaps: int) -> int:
    """The 64-bit source offset after an event: counted; where the source leaves events out, read from 32 bits."""
    counted = pos + size
    if gaps == 0 or end_pos == 0 or flags & 0x20:
        return counted
    told = (counted >> 32 << 32) | end_pos
    if told < counted:
        # Far below: the 32 bits wrapped. A little below: the event stands where it cannot; count instead.
        if counted - told < 1 << 31:
            return counted
        told += 1 << 32
    return told


@kernel
def _finish(state: Ints, records: Ints, gtids: Bytes, gtid: Bytes) -> None:
    n = state[10]
    kept = 1 if (state[7] != 0 or state[11] != 0) else 0
    records[n, 0] = state[4]
    records[n, 1] = state[3] - state[4]
    records[n, 2] = state[2]
    records[n, 3] = state[1]
    records[n, 4] = state[6]
    records[n, 5] = state[5] - state[6]
    records[n, 6] = state[12]
    records[n, 7] = 3 if state[11] else 0
    records[n, 8] = kept
    gtids[n] = gtid
    if kept == 0:
        state[3] = state[4]
        state[5] = state[6]
    state[10] = n + 1
    state[0] = 0
    state[7] = 0
    state[8] = 0
    state[11] = 0


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
    left_out: npt.NDArray[np.bool_],
    trailer: int,
    enough: int,
) -> int:
    """Takes events from EVENT_AT on until one of `Stop`. Kept events go to `out`, finished transactions to `records`."""
    count = len(offset)
    i = state[14]
    while i < count:
        t = kind[i]
        # int() of an unsigned number is unsigned in a kernel, and unsigned + signed is a float there.
        bytes_here: int = np.int64(size[i])  # type: ignore[assignment]
        told: int = np.int64(end_pos[i])  # type: ignore[assignment]
        bits: int = np.int64(flags[i])  # type: ignore[assignment]
        at = offset[i]
        end = end_of(state[1], bytes_here, told, bits, state[13])
        phase = state[0]
        if left_out[t]:
            if flags[i] & 0x20 == 0 and (state[13] == 0 or end_pos[i] != 0):
                state[1] = end
            i += 1
            continue
        starts = False
        finishes = False
        inside = bool(phase == 1)
        take = False
        if (t >= 23 and t <= 25) or (t >= 30 and t <= 32):
            take = inside and bytes_here >= 29 + trailer
        elif t == 19:
            if inside and bytes_here >= 27 + trailer:
                table = np.int64(0)
                for k in range(6):
                    table |= np.int64(data[at + 19 + k]) << (8 * k)
                where = np.searchsorted(known_tables, table)
                take = bool(where < len(known_tables) and known_tables[where] == table)
        elif t == 16:
            take = finishes = inside
        elif t == 162:
            flags2 = data[at + 31] if bytes_here >= 38 else np.uint8(0xFF)
            take = starts = bool(phase == 0 and flags2 & 0xC0 == 0)
            if take:
                inside = bool(flags2 & 1 == 0)
        elif t in (33, 34):
            take = starts = bool(phase == 0 and bytes_here >= 44 + trailer)
            inside = False
        elif t == 2 and bytes_here >= 37 + trailer:
            what = _query_is(data, at, bytes_here, trailer)
            if what == 1 and phase in (0, 3):
                take = inside = True
                starts = bool(phase == 0)
            elif what == 2 and phase == 1:
                take = finishes = True
        if not take:
            state[14] = i
            return 1
        if starts:
            # The event may still not fit; the same decision is taken again after the buffer was changed.
            if state[3] + bytes_here > len(out):
                state[14] = i
                return 2
            state[2] = state[1]
            state[4] = state[3]
            state[6] = state[5]
            state[7] = 0
            state[8] = 0
            gtid[:] = 0
            if t == 162:  # domain u32, server u32, sequence u64
                for k in range(4):
                    gtid[k] = data[at + 27 + k]
                    gtid[4 + k] = data[at + 5 + k]
                for k in range(8):
                    gtid[8 + k] = data[at + 19 + k]
            elif t == 33:  # UUID, number u64
                for k in range(24):
                    gtid[k] = data[at + 20 + k]
            state[0] = 1 if inside else (2 if t == 162 else 3)
        elif state[3] + bytes_here > len(out):
            state[14] = i
            return 2
        elif inside:
            state[0] = 1
        to = state[3]
        for k in range(bytes_here):
            out[to + k] = data[at + k]
        state[3] = to + bytes_here
        state[5] += 1
        state[8] += 1
        state[1] = end
        if (t >= 23 and t <= 25) or (t >= 30 and t <= 32):
            state[7] = 1
        i += 1
        if state[9] > 0:
            state[9] -= 1
            if state[9] == 0:
                state[14] = i
                return 4
        if finishes:
            _finish(state, records, gtids, gtid)
            if state[3] >= enough or state[10] >= len(records):
                state[14] = i
                return 3
    state[14] = i
    return 0
