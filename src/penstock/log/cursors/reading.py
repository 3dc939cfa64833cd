"""Which entries a cursor reads next: functions of a reader and of a cursor's acks, without state of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from pyroaring import BitMap

from penstock.arguments import shown
from penstock.errors import BadInput, Corruption, StorageFailed, Unavailable
from penstock.log.cursors.acked import runs
from penstock.log.cursors.acks import Acks
from penstock.log.frames.format import Entry
from penstock.log.position import Position, check_position
from penstock.log.read.positions import LedgerViews
from penstock.log.read.reader import LogReader

_WINDOW_ENTRIES = 1 << 16  # for so many entries at a time the acks are asked
_READ_OVER_ENTRIES = 32  # acked entries between two that are wanted: reading over them is cheaper than a second read

Skip = Callable[[Position], bool]
T = TypeVar("T")


class Batch(list[Entry]):
    """Entries that a cursor gave, and how often it had been moved by then: after a move nothing of them is given back."""

    moves = 0


def is_terminated(reader: LogReader) -> bool:
    """Whether nothing will be appended any more. False while the metadata store, which knows it, does not answer."""
    try:
        return reader.terminated()
    except (Unavailable, StorageFailed):
        return False


def unacked_runs(
    acks: Acks, views: LedgerViews, start: Position, end: Position | None = None
) -> Iterator[tuple[int, BitMap]]:
    """(ledger, entries that are not acked) from `start` to `end`, both included; in order, a window at a time."""
    for view in views.since(start.ledger_id):
        number = view.info.id
        if end is not None and number > end.ledger_id:
            break
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
    acks.seen(views)
    for number, wanted in _in_portions(unacked_runs(acks, views, start, end), max_entries):
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


def _in_portions(windows: Iterator[tuple[int, BitMap]], entries: int) -> Iterator[tuple[int, BitMap]]:
    """The windows in portions of at most so many entries: nothing after what is wanted is read from the disk."""
    for number, wanted in windows:
        for at in range(0, len(wanted), entries):
            yield number, wanted[at : at + entries]


def _read(reader: LogReader, first: Position, last: Position) -> Iterator[Entry]:
    try:
        yield from reader.entries(first, last)
    except (BadInput, Corruption):
        # Where a trim or truncation came after `ledgers()` was asked, there is nothing to read there any more.
        view = reader.ledgers().find(first.ledger_id)
        if view is not None and last.entry_id < view.entries:
            raise


def _after(views: LedgerViews, start: Position, end: Position | None) -> Position:
    """Where the next read begins once everything up to `end`, or to the end of the log, was read."""
    last = views.end
    if last is None or (end is not None and end.entry_id < 0 and end < last):
        return start
    if end is not None:
        last = min(last, end)
    return max(start, Position(last.ledger_id, last.entry_id + 1))


def _together(wanted: BitMap) -> Iterator[tuple[int, int]]:
    """The runs of `wanted`; runs that lie close to each other count as one."""
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


def nth_unacked(acks: Acks, views: LedgerViews, start: Position, number: int) -> Position | None:
    """The `number`-th entry, counted from 1, that is not acked at or after `start`."""
    acks.seen(views)
    for ledger_id, wanted in unacked_runs(acks, views, start):
        if number <= len(wanted):
            return Position(ledger_id, wanted[number - 1])
        number -= len(wanted)
    return None


def read_one(read: Callable[[Position, Position], Iterator[T]], place: Callable[[], Position | None]) -> T | None:
    """What `read` gives of the entry at `place`, which is asked again where that one was skipped in this moment."""
    while (position := place()) is not None:
        for found in read(position, position):
            return found
    return None


def place_to_read(reader: LogReader, position: Position | str) -> Position:
    """`position` as a place to read from, moved to what the log has. Raises `BadInput` where it is none."""
    if isinstance(position, Position):
        check_position("position", position)
        return max(min(position, reader.next(reader.end())), reader.first)
    if isinstance(position, str) and position == "earliest":
        return reader.first
    if isinstance(position, str) and position == "latest":
        return reader.next(reader.end())
    raise BadInput(f"{shown(position)} is no position", hint="a position, earliest or latest")
