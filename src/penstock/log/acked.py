"""Which entries of a log are acked: a mark-delete position, and roaring bitmaps of what is acked after it.

The pure state of a cursor, without I/O or threads, and its snapshot (docs/formats/record-log.md, "Cursor records").
"""

from __future__ import annotations

import struct
from uuid import UUID

from pyroaring import BitMap

from penstock.log.position import Position
from penstock.log.reader import LedgerView

SNAPSHOT = 1
_POSITION = struct.Struct("<Qq")
_BITMAP = struct.Struct("<QI")
_U32 = struct.Struct("<I")


class Acked:
    """Its holder locks. `views` are the ledgers of the log, in order."""

    def __init__(self, mark_delete: Position) -> None:
        self.mark_delete = mark_delete
        self.ledgers: dict[int, BitMap] = {}

    def contains(self, position: Position) -> bool:
        if position <= self.mark_delete:
            return True
        bitmap = self.ledgers.get(position.ledger_id)
        return bitmap is not None and position.entry_id >= 0 and position.entry_id in bitmap

    def ack(self, first: Position, last: Position, views: list[LedgerView]) -> None:
        for view in views:
            number = view.info.id
            if not first.ledger_id <= number <= last.ledger_id:
                continue
            low = max(first.entry_id, 0) if number == first.ledger_id else 0
            high = last.entry_id if number == last.ledger_id else view.entries - 1
            if number == self.mark_delete.ledger_id:
                low = max(low, self.mark_delete.entry_id + 1)
            if number >= self.mark_delete.ledger_id and low <= high:
                self.ledgers.setdefault(number, BitMap()).add_range(low, high + 1)
        self._advance(views)

    def move_to(self, position: Position, views: list[LedgerView]) -> None:
        if position > self.mark_delete:
            self.mark_delete = position
            self._advance(views)

    def _advance(self, views: list[LedgerView]) -> None:
        for view in views:
            number = view.info.id
            if number < self.mark_delete.ledger_id:
                continue
            bitmap = self.ledgers.get(number)
            entry = self.mark_delete.entry_id if number == self.mark_delete.ledger_id else -1
            if bitmap is not None:
                run = run_after(bitmap, entry)
                if run > entry:
                    entry = run
                    self.mark_delete = Position(number, entry)
            if not view.info.sealed or entry < view.entries - 1:
                break  # a hole, or the ledger may still grow
        self._forget()

    def _forget(self) -> None:
        """Drops what lies at or before the mark-delete."""
        mark = self.mark_delete
        for number in [n for n in self.ledgers if n < mark.ledger_id]:
            del self.ledgers[number]
        bitmap = self.ledgers.get(mark.ledger_id)
        if bitmap is not None and mark.entry_id >= 0:
            bitmap.remove_range(0, mark.entry_id + 1)
            if not bitmap:
                del self.ledgers[mark.ledger_id]

    def encode(self, uuid: UUID) -> bytes:
        parts = [bytes([SNAPSHOT]), uuid.bytes, _POSITION.pack(*self.mark_delete), _U32.pack(len(self.ledgers))]
        for number, bitmap in sorted(self.ledgers.items()):
            raw = bitmap.serialize()
            parts += (_BITMAP.pack(number, len(raw)), raw)
        return b"".join(parts)

    @classmethod
    def decode(cls, raw: bytes) -> tuple[UUID, Acked]:
        acked = cls(Position(*_POSITION.unpack_from(raw, 17)))
        (count,) = _U32.unpack_from(raw, 33)
        at = 37
        for _ in range(count):
            number, size = _BITMAP.unpack_from(raw, at)
            at += _BITMAP.size
            acked.ledgers[number] = BitMap.deserialize(raw[at : at + size])
            at += size
        return UUID(bytes=raw[1:17]), acked


def run_after(bitmap: BitMap, entry: int) -> int:
    """The last entry of the unbroken run that starts after `entry`; `entry` itself where there is none."""
    low, high = entry, bitmap.max() if bitmap else entry
    while low < high:
        middle = (low + high + 1) // 2
        if bitmap.range_cardinality(entry + 1, middle + 1) == middle - entry:
            low = middle
        else:
            high = middle - 1
    return low
