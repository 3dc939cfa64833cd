"""Which entries of a log are acked: a mark-delete position, and roaring bitmaps of what is acked after it.

The pure state of a cursor, without I/O or threads. Acking is a union of sets, so the order of acks within a group does
not matter. `advance` moves the mark-delete over contiguous acked entries, across the ends of ledgers too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from pyroaring import BitMap

from penstock.log.position import Position
from penstock.log.read.positions import LedgerView, LedgerViews

POSITION = struct.Struct("<Qq")
_BITMAP = struct.Struct("<QI")
_U32 = struct.Struct("<I")

Bitmaps = dict[int, BitMap]  # by ledger


class Acked:
    """Not thread-safe: the holder locks. `views` are the ledgers of the log, in order."""

    __slots__ = ("ledgers", "mark_delete")

    def __init__(self, mark_delete: Position, ledgers: Bitmaps | None = None) -> None:
        self.mark_delete = mark_delete
        self.ledgers: Bitmaps = ledgers or {}

    def contains(self, position: Position) -> bool:
        if position <= self.mark_delete:
            return True
        bitmap = self.ledgers.get(position.ledger_id)
        return bitmap is not None and position.entry_id >= 0 and position.entry_id in bitmap

    def add(self, bitmaps: Mapping[int, BitMap]) -> None:
        for number, bitmap in bitmaps.items():
            if number in self.ledgers:
                self.ledgers[number] |= bitmap
            else:
                self.ledgers[number] = bitmap.copy()

    def move_to(self, position: Position) -> None:
        self.mark_delete = max(self.mark_delete, position)

    def advance(self, views: LedgerViews) -> None:
        """Moves the mark-delete as far as entries are acked without a gap, and forgets the bits at or before it."""
        self._forget()
        if not self.ledgers:
            return
        for view in views.since(self.mark_delete.ledger_id):
            number = view.info.id
            bitmap = self.ledgers.get(number)
            entry = self.mark_delete.entry_id if number == self.mark_delete.ledger_id else -1
            if bitmap is not None:
                run = run_after(bitmap, entry)
                if run > entry:
                    entry = run
                    self.mark_delete = Position(number, entry)
            if not view.info.sealed or entry < view.entries - 1:
                break  # the next entry is not acked, or the ledger may still grow
        self._forget()

    def follow_trim(self, views: LedgerViews) -> None:
        """Moves a mark-delete whose ledger was trimmed to the start of the first ledger: nothing before can be read."""
        if views and self.mark_delete.ledger_id < views[0].info.id:
            self.mark_delete = Position(views[0].info.id, -1)
            self.advance(views)

    def follow_skips(self, views: LedgerViews) -> int:
        """Counts entries that were skipped, because they cannot be read, as acked; how many of them were not."""
        passed = 0
        for info in views.skipped:
            lacking = self.unacked(info.id, 0, info.entries - 1) & info.skipped_entries()
            if lacking:
                self.add({info.id: lacking})
                passed += len(lacking)
        return passed

    def follow_truncation(self, views: LedgerViews) -> None:
        """Forgets the acks of entries that the log does not have any more. Without it, the mark-delete would go over
        entries that are not there."""
        self.mark_delete = views.kept(self.mark_delete)
        clip(self.ledgers, views)
        self.advance(views)

    def backlog(self, views: LedgerViews) -> int:
        """How many entries of the log are not acked."""
        passed = views.up_to(self.mark_delete)
        acked = 0
        for number, bitmap in self.ledgers.items():
            view = views.find(number)
            if view is not None and number >= self.mark_delete.ledger_id:
                low = self.mark_delete.entry_id + 1 if number == self.mark_delete.ledger_id else 0
                acked += bitmap.range_cardinality(low, max(view.entries, low))
        return views.entries - passed - acked

    def unacked(self, ledger_id: int, first: int, last: int) -> BitMap:
        """The entries of `first` to `last`, both included, that are not acked."""
        mark = self.mark_delete
        if ledger_id < mark.ledger_id:
            return BitMap()
        if ledger_id == mark.ledger_id:
            first = max(first, mark.entry_id + 1)
        if first > last:
            return BitMap()
        wanted = BitMap(range(first, last + 1))
        bitmap = self.ledgers.get(ledger_id)
        return wanted if bitmap is None else wanted - bitmap

    def count(self, view: LedgerView) -> int:
        """How many entries of the ledger are not acked."""
        mark, number = self.mark_delete, view.info.id
        if number < mark.ledger_id:
            return 0
        passed = mark.entry_id + 1 if number == mark.ledger_id else 0
        bitmap = self.ledgers.get(number)
        acked = bitmap.range_cardinality(passed, max(view.entries, passed)) if bitmap is not None else 0
        return max(view.entries - passed - acked, 0)

    @property
    def holes(self) -> int:
        """How many runs of acked entries lie after the mark-delete."""
        return sum(len(bitmap) - bitmap.intersection_cardinality(bitmap.shift(1)) for bitmap in self.ledgers.values())

    def _forget(self) -> None:
        mark = self.mark_delete
        for number in [n for n in self.ledgers if n < mark.ledger_id]:
            del self.ledgers[number]
        bitmap = self.ledgers.get(mark.ledger_id)
        if bitmap is not None and mark.entry_id >= 0:
            bitmap.remove_range(0, mark.entry_id + 1)
            if not bitmap:
                del self.ledgers[mark.ledger_id]


def clip(bitmaps: Bitmaps, views: LedgerViews) -> None:
    """Removes the entries that a truncation took from the log."""
    for number in list(bitmaps):
        view = views.find(number)
        if view is None:
            del bitmaps[number]
        elif view.info.sealed and bitmaps[number] and bitmaps[number].max() >= view.entries:
            bitmaps[number].remove_range(view.entries, bitmaps[number].max() + 1)
            if not bitmaps[number]:
                del bitmaps[number]


def split(first: Position, last: Position, views: LedgerViews) -> Bitmaps:
    """The entries from `first` to `last`, both included, by ledger."""
    bitmaps: Bitmaps = {}
    for view in views.since(first.ledger_id):
        number = view.info.id
        if number > last.ledger_id:
            break
        low = max(first.entry_id, 0) if number == first.ledger_id else 0
        high = last.entry_id if number == last.ledger_id else view.entries - 1
        if low <= high:
            bitmaps[number] = BitMap(range(low, high + 1))
    return bitmaps


def runs(bitmap: BitMap) -> Iterator[tuple[int, int]]:
    """The unbroken runs of entries, as (first, last), both included."""
    first = last = -2
    for entry in bitmap:
        if entry != last + 1:
            if first >= 0:
                yield first, last
            first = entry
        last = entry
    if first >= 0:
        yield first, last


def run_after(bitmap: BitMap, entry: int) -> int:
    """The last entry of the unbroken run that starts after `entry`; `entry` itself where there is none."""
    if not bitmap or entry + 1 not in bitmap:
        return entry
    low, high = entry + 1, bitmap.max()
    step = 1
    while low < high:  # steps that double, then halve: most runs are short
        middle = min(low + step, high)
        if bitmap.contains_range(low, middle + 1):
            low, step = middle, step * 2
        elif step == 1:
            break
        else:
            high, step = middle - 1, max(step // 2, 1)
    return low


def encode_bitmaps(bitmaps: Mapping[int, BitMap]) -> bytes:
    parts = [_U32.pack(len(bitmaps))]
    for number in sorted(bitmaps):
        raw = bitmaps[number].serialize()
        parts += (_BITMAP.pack(number, len(raw)), raw)
    return b"".join(parts)


def decode_bitmaps(raw: bytes, at: int) -> tuple[Bitmaps, int]:
    """The bitmaps, and where they end."""
    (count,) = _U32.unpack_from(raw, at)
    at += _U32.size
    bitmaps: Bitmaps = {}
    for _ in range(count):
        number, size = _BITMAP.unpack_from(raw, at)
        at += _BITMAP.size
        bitmaps[number] = BitMap.deserialize(raw[at : at + size])
        at += size
    return bitmaps, at
