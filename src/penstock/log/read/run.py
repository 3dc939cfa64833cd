"""Runs: stretches of verified frames in memory, the unit in which a log is read, cached and handed out."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Iterable, Iterator

import numpy as np

from penstock.errors import NotSupported
from penstock.files import Buffer
from penstock.log.frames.format import (
    HEADER_BYTES,
    TRAILER_BYTES,
    BadFrame,
    Entry,
    FrameInfo,
    StateChange,
    decode_changes,
    decode_header,
    verify_body,
)
from penstock.log.frames.writer import I64Array, Packed
from penstock.log.position import Position

_PYTHON_BYTES_MAX = 256 << 10  # smaller chunks are not worth the import of numba
_KERNELS = "penstock.log.frames.kernels"
_FRAME_BYTES_MIN = HEADER_BYTES + TRAILER_BYTES
_REASONS = (
    "the frame reaches over the end",
    "no frame starts here",
    "the header's checksum does not match",
    "",
    "the frame belongs to another file",
    "another entry stands here",
    "the checksum does not match",
)


_scratch = threading.local()
_POSITION = functools.partial(tuple.__new__, Position)
_ENTRY = functools.partial(tuple.__new__, Entry)


class Run:
    """Entries `first` to `last` of a ledger. `table` has a row each: offset in `raw`, data, changes, wall_ms."""

    __slots__ = ("first", "last", "ledger_id", "needed", "raw", "table")

    def __init__(self, ledger_id: int, first: int, raw: Buffer, table: I64Array) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.last = first + len(table) - 1
        self.raw = raw
        self.table = table
        self.needed = 0  # how often the cache kept it because a cursor was still to come

    @property
    def end(self) -> int:
        """Where its last frame ends in `raw`."""
        offset, data_len, changes_len, _ = self.table[-1].tolist()
        return int(offset + data_len + changes_len + _FRAME_BYTES_MIN)

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        """The entries of the run between the two, both included."""
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
        # Made by the interpreter's own loops, past the constructors: a pass over large entries waits for the memory alone.
        positions = map(
            _POSITION, zip(itertools.repeat(self.ledger_id), range(first, first + len(starts)), strict=False)
        )
        data = map(view.__getitem__, map(slice, starts, ends))
        return map(_ENTRY, zip(positions, data, changes, times, strict=False))

    def infos(self, first: int, last: int) -> Iterator[FrameInfo]:
        """As `entries`, without the data."""
        for entry in self.entries(first, last):
            yield FrameInfo(entry.position, len(entry.data), entry.changes, entry.wall_ms)


def run_of(ledger_id: int, packed: Packed, wall_ms: int) -> Run:
    """What an owner just wrote, as a reader would have read it."""
    table = np.empty((len(packed.offsets), 4), np.int64)
    table[:, 0], table[:, 1], table[:, 2] = packed.offsets, packed.data_lens, packed.changes_lens
    table[:, 3] = wall_ms
    return Run(ledger_id, packed.first, packed.raw, table)


def check_chunk(raw: bytes, file_id: int, first: int) -> tuple[I64Array, int, int, str]:
    """The whole frames at the head of `raw`, entry `first` and those after it.

    Gives their table, where they end, how many bytes the frame there has at least, and why it is no frame ("" where the
    bytes merely end). Every frame of the table matches its checksums.
    """
    if len(raw) <= _PYTHON_BYTES_MAX and _KERNELS not in sys.modules:
        return _check_in_python(raw, file_id, first)
    from penstock.log.frames.kernels import BAD_VERSION, END, check_frames  # here, because numba is slow to import

    rows = len(raw) // _FRAME_BYTES_MIN + 1
    found = getattr(_scratch, "found", None)  # a fresh table each time would cost more in page faults than the check
    if found is None or len(found) < rows:
        found = _scratch.found = np.empty((rows, 5), np.int64)
    count, at, status, need = check_frames(np.frombuffer(raw, np.uint8), 0, file_id, first, found)
    if status == BAD_VERSION:
        raise _unknown_version(raw[at + 4], raw[at + 5])
    reason = "" if status == END else _REASONS[status]
    return found[:count, :4].copy(), at, need, reason


def _check_in_python(raw: bytes, file_id: int, first: int) -> tuple[I64Array, int, int, str]:
    rows: list[tuple[int, int, int, int]] = []
    at, need, reason = 0, HEADER_BYTES, ""
    while at + HEADER_BYTES <= len(raw):
        try:
            header = decode_header(raw, at, file_id)
            if header.entry_id != first + len(rows):
                raise BadFrame(f"entry {header.entry_id} stands where {first + len(rows)} should")
            need = header.frame_bytes
            if at + need > len(raw):
                break
            verify_body(raw, at, header)
        except BadFrame as error:
            reason = str(error)
            break
        rows.append((at, header.data_len, header.changes_len, header.wall_ms))
        at += need
        need = HEADER_BYTES
    return np.array(rows, np.int64).reshape(-1, 4), at, need, reason


def _unknown_version(version: int, flags: int) -> NotSupported:
    return NotSupported(
        f"frame version {version} with flags {flags:#x} is not known", hint="a newer Penstock wrote it: upgrade"
    )
