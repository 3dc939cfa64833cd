"""Cursors: named, durable readers of a log (docs/formats/record-log.md, "Cursor records").

A cursor is owned apart from its log, with an epoch of its own: its acks go into a record log of its own, and an ack is
durable when its future completes. It holds a mark-delete position (nothing at or before it is needed any more) and the
single acked entries after it, in a roaring bitmap a ledger: there is no limit on holes, and none is ever dropped.
The mark-delete moves over contiguous acked entries, across the ends of ledgers too. It never moves back.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from penstock.errors import BadInput, Corruption, NotSupported
from penstock.files import REAL_FILES, Files
from penstock.log.acked import SNAPSHOT, Acked, run_after
from penstock.log.pending import Pending
from penstock.log.position import Position
from penstock.log.reader import LedgerView, LogReader
from penstock.log.record_log import RecordLog
from penstock.metadata import VersionConflict

_ACK, _MARK_DELETE = 2, 3
_POSITION = struct.Struct("<Qq")
_REWRITE_BYTES_MIN = 1 << 20
_REWRITE_FACTOR = 8  # rewrite once the records are this many times the size of a snapshot


class MarkDeleteBackwards(BadInput):
    """The mark-delete would move back. Nothing was changed."""


class AckBeyondEnd(BadInput):
    """The entries to ack are not durable in the log. Nothing was changed."""


class Cursor:
    """The owner's handle. Thread-safe."""

    def __init__(self, reader: LogReader, name: str, records: RecordLog, acked: Acked) -> None:
        self.name = name
        self._reader = reader
        self._records = records
        self._acked = acked
        self._durable = acked.mark_delete
        self._lock = threading.Lock()
        self._rewriting = False

    @classmethod
    def open(
        cls,
        reader: LogReader,
        directory: Path,
        name: str,
        start: Literal["earliest", "latest"] | Position = "earliest",
        files: Files = REAL_FILES,
    ) -> Cursor:
        """Becomes the owner of the cursor; `start` counts only where it is new (a position: entries after it are unread).

        Raises `Unavailable` while another process owns it, `Corruption` where it was there and is damaged or gone.
        """
        key = f"cursor/{reader.name}/{name}"
        registered = reader.metadata.get(key) is not None
        with contextlib.ExitStack() as on_error:
            records = RecordLog.open(directory, name, files)
            on_error.callback(records.close)
            acked = _replay(records, reader)
            if acked is None:
                if registered:
                    raise Corruption(
                        f"cursor {name} is registered, but {directory} has no record of it",
                        hint="nothing was changed; restore the directory from a copy",
                    )
                acked = Acked(_start(reader, start))
                records.append(acked.encode(reader.uuid)).result()
            if not registered:
                with contextlib.suppress(VersionConflict):  # another opener registered it: the lock says who owns it
                    reader.metadata.create(key, str(reader.uuid).encode())
            on_error.pop_all()
        return cls(reader, name, records, acked)

    @property
    def epoch(self) -> int:
        return self._records.epoch

    @property
    def mark_delete_position(self) -> Position:
        """Nothing at or before it is needed any more; durable."""
        return self._durable

    def ack(self, first: Position, last: Position) -> Pending[None]:
        """Acks the entries from `first` to `last`, both included; done once that is durable.

        Acking again is fine. Raises `AckBeyondEnd` where an entry of them is not durable in the log.
        """
        last = _previous(last, self._reader.ledgers()) if last.entry_id < 0 else last
        if first > last:
            raise BadInput(f"cannot ack from {first} to {last}: the first comes after the last")
        record = bytes([_ACK]) + _POSITION.pack(*first) + _POSITION.pack(*last)
        self._records.wait_for_room()  # not under the lock: a callback of the writer's thread may want it
        with self._lock:
            views = self._known(last)
            pending = self._records.append(record, wait=False)
            self._acked.ack(first, last, views)
            return self._after(pending)

    def mark_delete(self, position: Position) -> Pending[None]:
        """Acks everything up to `position`. Raises `MarkDeleteBackwards` for an older one, `AckBeyondEnd` for one to come."""
        self._records.wait_for_room()
        with self._lock:
            position = _previous(position, self._reader.ledgers())
            if position < self._acked.mark_delete:
                raise MarkDeleteBackwards(
                    f"cursor {self.name} is at {self._acked.mark_delete} and cannot go back to {position}"
                )
            views = self._known(position)
            pending = self._records.append(bytes([_MARK_DELETE]) + _POSITION.pack(*position), wait=False)
            self._acked.move_to(position, views)
            return self._after(pending)

    def is_acked(self, position: Position) -> bool:
        """Whether an ack of this entry was taken (it may still be on its way to the disk)."""
        with self._lock:
            return self._acked.contains(position)

    def backlog(self) -> int:
        """How many durable entries of the log are not acked. Exact."""
        views = self._reader.ledgers()
        with self._lock:
            return sum(self._unacked(view) for view in views)

    def holes(self) -> Iterator[tuple[Position, Position]]:
        """The acked runs after the mark-delete, as (first, last); for status."""
        with self._lock:
            ledgers = [(number, bitmap.copy()) for number, bitmap in sorted(self._acked.ledgers.items())]
        for number, bitmap in ledgers:
            at = -1
            while bitmap and at < bitmap.max():
                first = bitmap.next_set_bit(at + 1)
                at = run_after(bitmap, first)
                yield Position(number, first), Position(number, at)

    def close(self) -> None:
        """Finishes the acks on their way and gives up ownership."""
        self._records.close()

    def _unacked(self, view: LedgerView) -> int:
        mark = self._acked.mark_delete
        number = view.info.id
        if number < mark.ledger_id:
            return 0
        passed = mark.entry_id + 1 if number == mark.ledger_id else 0
        return max(view.entries - passed - len(self._acked.ledgers.get(number, ())), 0)

    def _known(self, position: Position) -> list[LedgerView]:
        """The ledgers, after a check that `position` is durable."""
        views = self._reader.ledgers()
        if position > self._acked.mark_delete:
            end = self._reader.end()
            entries = next((view.entries for view in views if view.info.id == position.ledger_id), 0)
            if position > end or position.entry_id >= entries:
                raise AckBeyondEnd(f"cursor {self.name}: entry {position} is not in the log, which ends at {end}")
        return views

    def _after(self, appended: Pending[int]) -> Pending[None]:
        """Publishes the mark-delete when the record is durable. Called with the lock held."""
        answer: Pending[None] = Pending()
        mark_delete = self._acked.mark_delete
        self._rewrite_if_large()

        def finish(done: Pending[int]) -> None:
            error = done.exception(0)
            if error is not None:
                answer.fail(error)
                return
            self._durable = max(self._durable, mark_delete)
            answer.complete(None)

        appended.add_done_callback(finish)
        return answer

    def _rewrite_if_large(self) -> None:
        size = self._records.bytes
        if self._rewriting or size < _REWRITE_BYTES_MIN:
            return
        snapshot = self._acked.encode(self._reader.uuid)
        if size < _REWRITE_FACTOR * len(snapshot):
            return
        self._rewriting = True

        def finish(_: Pending[int]) -> None:
            self._rewriting = False

        self._records.rewrite_later([(snapshot, ())]).add_done_callback(finish)


def _start(reader: LogReader, start: Literal["earliest", "latest"] | Position) -> Position:
    if start == "earliest":
        return Position(reader.first.ledger_id, -1)
    if start == "latest":
        return reader.end()
    if not isinstance(start, Position):
        raise BadInput(f"a cursor cannot start at {start!r}", hint="earliest, latest or a position")
    if start > reader.end():
        raise AckBeyondEnd(f"a cursor cannot start at {start}, the log ends at {reader.end()}")
    return start


def _replay(records: RecordLog, reader: LogReader) -> Acked | None:
    acked: Acked | None = None
    views = reader.ledgers()
    for record in records.records():
        kind = record.data[0]
        if kind == SNAPSHOT:
            uuid, acked = Acked.decode(record.data)
            if uuid != reader.uuid:
                raise Corruption(
                    f"the cursor belongs to log {uuid}, not to {reader.uuid}",
                    hint="nothing was changed; the log or the cursors come from another state directory",
                )
        elif acked is None:
            raise Corruption(f"record {record.number} of a cursor comes before any snapshot")
        elif kind == _ACK:
            first, last = _POSITION.unpack_from(record.data, 1), _POSITION.unpack_from(record.data, 17)
            acked.ack(Position(*first), Position(*last), views)
        elif kind == _MARK_DELETE:
            acked.move_to(Position(*_POSITION.unpack_from(record.data, 1)), views)
        else:
            raise NotSupported(f"cursor record of kind {kind} is not known", hint="a newer Penstock wrote it: upgrade")
    if acked is not None:
        _refuse_beyond(acked.mark_delete, views)
    return acked


def _refuse_beyond(mark_delete: Position, views: list[LedgerView]) -> None:
    """A cursor beyond its log means that the log lost entries. The open ledger says nothing yet: after a power cut its
    published end may be old until the log's owner has recovered it."""
    view = next((view for view in views if view.info.id == mark_delete.ledger_id), None)
    newest = max((view.info.id for view in views), default=0)
    if (view is None and mark_delete.ledger_id > newest and mark_delete.entry_id >= 0) or (
        view is not None and view.info.sealed and mark_delete.entry_id >= view.entries
    ):
        raise Corruption(
            f"the cursor is at {mark_delete}, which the log does not have",
            hint="nothing was changed; the log was restored from an older copy than its cursors",
        )


def _previous(position: Position, views: list[LedgerView]) -> Position:
    """`(L, -1)` as the last entry before it, which is the same place."""
    if position.entry_id >= 0:
        return position
    before = [view for view in views if view.info.id < position.ledger_id and view.entries]
    return Position(before[-1].info.id, before[-1].entries - 1) if before else position


__all__ = ["AckBeyondEnd", "Cursor", "MarkDeleteBackwards"]
