"""Runs: consecutive verified frames in one piece of memory. A log is read, cached and handed out in runs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from penstock.files import Buffer
from penstock.log.frames.format import (
    FRAME_BYTES_MIN,
    HEADER_BYTES,
    MESSAGES_AT,
    Entry,
    FrameInfo,
    StateChange,
    decode_changes,
)
from penstock.log.frames.index import I64Array
from penstock.log.frames.writer import EncodedFrames
from penstock.log.position import Position

_POSITION = functools.partial(tuple.__new__, Position)
_ENTRY = functools.partial(tuple.__new__, Entry)


class FrameRun:
    """Entries `first` to `last` of a ledger. `table` has a row for each: offset in `raw`, data_len, changes_len, wall_ms.

    `more` is how many messages they stand for beyond one each.
    """

    __slots__ = ("first", "last", "ledger_id", "more", "raw", "requeues", "table")

    def __init__(self, ledger_id: int, first: int, raw: Buffer, table: I64Array, more: int = 0) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.last = first + len(table) - 1
        self.raw = raw
        self.table = table
        self.more = more
        self.requeues = 0  # how often the cache kept it because a cursor had not read it yet

    @property
    def end(self) -> int:
        """Where the last frame ends in `raw`."""
        offset, data_len, changes_len, _ = self.table[-1].tolist()
        return int(offset + data_len + changes_len + FRAME_BYTES_MIN)

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        """The entries `first` to `last` of the run, both included."""
        view = memoryview(self.raw).toreadonly()
        first = max(first, self.first)
        table = self.table[first - self.first : last + 1 - self.first]
        starts = (table[:, 0] + HEADER_BYTES).tolist()
        ends = (table[:, 0] + (table[:, 1] + HEADER_BYTES)).tolist()
        times = table[:, 3].tolist()
        changes: Iterable[tuple[StateChange, ...]] = itertools.repeat(())
        if table[:, 2].any():
            changes = (
                decode_changes(bytes(view[end : end + size]), wall_ms) if size else ()
                for end, size, wall_ms in zip(ends, table[:, 2].tolist(), times, strict=True)
            )
        # map and zip build the tuples without a step of Python code for each entry, and without calling a constructor.
        positions = map(
            _POSITION, zip(itertools.repeat(self.ledger_id), range(first, first + len(starts)), strict=False)
        )
        data = map(view.__getitem__, map(slice, starts, ends))
        messages = self._messages(table) if self.more else itertools.repeat(1)
        return map(_ENTRY, zip(positions, data, changes, times, messages, strict=False))

    def _messages(self, table: I64Array) -> Iterable[int]:
        raw = np.frombuffer(self.raw, np.uint8)
        at = table[:, 0] + MESSAGES_AT
        messages: list[int] = ((raw[at + 1].astype(np.int64) << 8) + raw[at] + 1).tolist()
        return messages

    def infos(self, first: int, last: int) -> Iterator[FrameInfo]:
        """As `entries`, without the data."""
        for entry in self.entries(first, last):
            yield FrameInfo(entry.position, len(entry.data), entry.changes, entry.wall_ms, entry.messages)


def run_of(ledger_id: int, frames: EncodedFrames, wall_ms: int) -> FrameRun:
    """The run that a reader would read of frames that the owner just wrote."""
    table = np.empty((len(frames.offsets), 4), np.int64)
    table[:, 0], table[:, 1], table[:, 2] = frames.offsets, frames.data_lens, frames.changes_lens
    table[:, 3] = wall_ms
    return FrameRun(ledger_id, frames.first, frames.raw, table, frames.more)
