"""What a cursor reads next, and where things are in its log: pure questions, asked of a reader and a cursor's acks."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pyroaring import BitMap

from penstock.errors import BadInput, Corruption, StorageFailed, Unavailable
from penstock.log.acked import runs
from penstock.log.cursor_acks import Acks
from penstock.log.frame import Entry
from penstock.log.holds import log_list_key
from penstock.log.ledger import LedgerList
from penstock.log.position import Position
from penstock.log.reader import LedgerView, LogReader

_WINDOW_ENTRIES = 1 << 16  # how far ahead the acks are looked at in one go
_READ_OVER_ENTRIES = 32  # acked entries between two that are wanted: reading over them is cheaper than a second read

Skip = Callable[[Position], bool]


def is_terminated(reader: LogReader) -> bool:
    """Whether nothing will be appended any more. Asks the metadata store; one that is down cannot say so."""
    with contextlib.suppress(Unavailable, StorageFailed):
        listed = reader.metadata.get(log_list_key(reader.name))
        return listed is None or bool(getattr(LedgerList.decode(listed.value), "terminated", False))
    return False


class Spans(NamedTuple):
    """The entries of a log in one line, numbered from 0, whatever ledgers they are in."""

    views: list[LedgerView]
    starts: list[int]
    total: int

    @classmethod
    def of(cls, views: list[LedgerView]) -> Spans:
        kept = [view for view in views if view.entries]
        starts = []
        total = 0
        for view in kept:
            starts.append(total)
            total += view.entries
        return cls(kept, starts, total)

    def position(self, number: int) -> Position:
        at = bisect.bisect_right(self.starts, number) - 1
        return Position(self.views[at].info.id, number - self.starts[at])

    def number(self, position: Position) -> int:
        """Of the first entry at or after `position`; `total` where there is none."""
        for view, start in zip(self.views, self.starts, strict=True):
            if view.info.id == position.ledger_id and position.entry_id < view.entries:
                return start + max(position.entry_id, 0)
            if view.info.id > position.ledger_id:
                return start
        return self.total


def unacked_runs(
    acks: Acks, views: list[LedgerView], start: Position, end: Position | None = None
) -> Iterator[tuple[int, BitMap]]:
    """(ledger, entries that are not acked) from `start` on to `end`, included; in order, a window at a time."""
    for view in views:
        number = view.info.id
        if number < start.ledger_id or (end is not None and number > end.ledger_id):
            continue
        first = max(start.entry_id, 0) if number == start.ledger_id else 0
        stop = view.entries if end is None or number < end.ledger_id else min(view.entries, end.entry_id + 1)
        while first < stop:
            last = min(first + _WINDOW_ENTRIES, stop) - 1
            wanted = acks.unacked(number, first, last)
            if wanted:
                yield number, wanted
            first = last + 1


def read_entries(
    reader: LogReader,
    acks: Acks,
    start: Position,
    *,
    max_entries: int,
    max_bytes: int | None,
    end: Position | None,
    skip: Skip | None,
) -> tuple[list[Entry], Position]:
    """(the next entries that are not acked, where to go on). Stops after the entry that reaches `max_bytes`."""
    entries: list[Entry] = []
    total = 0
    views = reader.ledgers()
    for number, wanted in unacked_runs(acks, views, start, end):
        for first, last in _together(wanted):
            for entry in _read(reader, Position(number, first), Position(number, last)):
                at = entry.position.entry_id
                if at not in wanted or (skip is not None and skip(entry.position)):
                    continue
                entries.append(entry)
                total += len(entry.data)
                if len(entries) >= max_entries or (max_bytes is not None and total >= max_bytes):
                    return entries, Position(number, at + 1)
    return entries, _after(views, start, end)


def _read(reader: LogReader, first: Position, last: Position) -> Iterator[Entry]:
    try:
        yield from reader.read(first, last)
    except (BadInput, Corruption):
        # Trim may have taken the ledger between our look and the read: then it is not missing, and we go on after it.
        if any(view.info.id == first.ledger_id for view in reader.ledgers()):
            raise


def _after(views: list[LedgerView], start: Position, end: Position | None) -> Position:
    """Where the next read begins once everything up to `end`, or to the end of the log, was looked at."""
    last = max((Position(view.info.id, view.entries - 1) for view in views if view.entries), default=start)
    if end is not None:
        last = min(last, end)
    return max(start, Position(last.ledger_id, last.entry_id + 1)) if last.entry_id >= 0 else start


def _together(wanted: BitMap) -> Iterator[tuple[int, int]]:
    """The runs of `wanted`, those that lie close to each other as one."""
    first = last = -1
    for low, high in runs(wanted):
        if first < 0:
            first = low
        elif low - last - 1 > _READ_OVER_ENTRIES:
            yield first, last
            first = low
        last = high
    if first >= 0:
        yield first, last


def nth_unacked(acks: Acks, views: list[LedgerView], start: Position, number: int) -> Position | None:
    """The `number`-th entry, counted from 1, that is not acked at or after `start`."""
    for ledger_id, wanted in unacked_runs(acks, views, start):
        if number <= len(wanted):
            return Position(ledger_id, wanted[number - 1])
        number -= len(wanted)
    return None


def find_newest(reader: LogReader, start: Position, matches: Callable[[Entry], bool]) -> Position | None:
    """The newest entry from `start` on that matches, by binary search: entries match up to a point, and none after it.

    None where the first one does not match, or there is none.
    """
    spans = Spans.of(reader.ledgers())
    low, high = spans.number(start), spans.total  # what matches is below `high`; `low` is not looked at yet
    found: Position | None = None
    while low < high:
        middle = (low + high) // 2
        position = spans.position(middle)
        entry = next(reader.read(position, position))
        if matches(entry):
            found, low = position, middle + 1
        else:
            high = middle
    return found


def find_newest_by_time(reader: LogReader, start: Position, wall_ms: int) -> Position | None:
    """The newest entry from `start` on that was written at or before `wall_ms`.

    Where the clock went back, an entry counts as written at the highest time up to it, as in the ledgers' time index.
    """
    found: Position | None = None
    highest = 0
    for view in reader.ledgers():
        if not view.entries or view.info.id < start.ledger_id:
            continue
        first = max(start.entry_id, 0) if view.info.id == start.ledger_id else 0
        if first >= view.entries:
            continue
        highest = max(highest, view.info.last_ms)
        if view.info.sealed and highest <= wall_ms:
            found = Position(view.info.id, view.entries - 1)
            continue
        return _last_at(reader, view, first, wall_ms) or found
    return found


def _last_at(reader: LogReader, view: LedgerView, first: int, wall_ms: int) -> Position | None:
    low, high = first, view.entries
    while low < high:
        middle = (low + high) // 2
        position = Position(view.info.id, middle)
        if next(reader.scan(position, position)).wall_ms <= wall_ms:
            low = middle + 1
        else:
            high = middle
    return Position(view.info.id, low - 1) if low > first else None
