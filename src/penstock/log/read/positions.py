"""Arithmetic with positions across ledgers: next, previous, how many between. Pure: over what a reader sees at one moment.

A log that is kept for ever has tens of thousands of ledgers, so nothing here walks over all of them: the ledgers are
found by their numbers, and entries are counted by sums that are made once for each ledger list.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from penstock.log.frames.end_file import SyncedEnd
from penstock.log.frames.file_header import FILE_HEADER_BYTES
from penstock.log.frames.format import FRAME_BYTES_MIN
from penstock.log.ledgers.info import LedgerInfo
from penstock.log.position import Position, Span


class LedgerView(NamedTuple):
    """A ledger as a reader sees it now: `entries` durable entries in the first `frames_end` bytes."""

    info: LedgerInfo
    entries: int
    frames_end: int
    messages: int = 0  # that they stand for

    @property
    def body_bytes(self) -> int:
        """What callers appended, data and state changes: `frames_end` without the header and the frames."""
        return max(self.frames_end - FILE_HEADER_BYTES - self.entries * FRAME_BYTES_MIN, 0)


def view_of(info: LedgerInfo, slot: SyncedEnd | None) -> LedgerView:
    """The ledger as the list and the newest slot tell of it."""
    if info.sealed:
        return LedgerView(info, info.entries, info.frames_end, info.messages)
    if slot is not None and slot.file_id == info.id:
        entries = slot.last.entry_id + 1 if slot.last.ledger_id == info.id else 0
        return LedgerView(info, entries, slot.synced_end, slot.messages)
    return LedgerView(info, 0, FILE_HEADER_BYTES)


class _Sums:
    """The numbers of the ledgers, how many entries come before each of them, and those of which entries were skipped;
    shared by the views of one list."""

    __slots__ = ("before", "ids", "skipped")

    def __init__(self, views: Sequence[LedgerView]) -> None:
        self.ids = [view.info.id for view in views]
        self.before = list(itertools.accumulate((view.entries for view in views), initial=0))
        self.skipped = tuple(view.info for view in views if view.info.skipped)


class LedgerViews(Sequence[LedgerView]):
    """The ledgers of a log at one moment, in order. Immutable.

    Only the last ledger of a list can be open, so a moment later all but the last view are the same: `grown` shares them.
    `truncations` is that of the list: of two moments with the same number, the later one has every entry of the earlier
    one that was not trimmed.
    """

    __slots__ = ("_first", "_last", "_sums", "truncations")

    def __init__(self, views: Sequence[LedgerView] = (), truncations: int = 0) -> None:
        self.truncations = truncations
        self._first: Sequence[LedgerView] = views[:-1]
        self._last: LedgerView | None = views[-1] if views else None
        self._sums = _Sums(views)

    def grown(self, last: LedgerView) -> LedgerViews:
        """The same ledgers, the last one with other counts."""
        if last == self._last:
            return self
        views = LedgerViews.__new__(LedgerViews)
        views._first, views._last, views._sums, views.truncations = self._first, last, self._sums, self.truncations
        return views

    @overload
    def __getitem__(self, at: int) -> LedgerView: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[LedgerView]: ...
    def __getitem__(self, at: int | slice) -> LedgerView | Sequence[LedgerView]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        size = len(self._sums.ids)
        number = at + size if at < 0 else at
        if number == size - 1 and self._last is not None:
            return self._last
        if not 0 <= number < size:
            raise IndexError(at)
        return self._first[number]

    def __len__(self) -> int:
        return len(self._sums.ids)

    def __iter__(self) -> Iterator[LedgerView]:
        return itertools.chain(self._first, () if self._last is None else (self._last,))

    def find(self, ledger_id: int) -> LedgerView | None:
        """The ledger of that number."""
        ids = self._sums.ids
        at = bisect.bisect_left(ids, ledger_id)
        return self[at] if at < len(ids) and ids[at] == ledger_id else None

    def since(self, ledger_id: int) -> Iterator[LedgerView]:
        """The ledgers with that number or a higher one, in order."""
        for at in range(bisect.bisect_left(self._sums.ids, ledger_id), len(self._sums.ids)):
            yield self[at]

    def until(self, ledger_id: int) -> Iterator[LedgerView]:
        """The ledgers with that number or a lower one, the highest first."""
        for at in range(bisect.bisect_right(self._sums.ids, ledger_id) - 1, -1, -1):
            yield self[at]

    @property
    def skipped(self) -> tuple[LedgerInfo, ...]:
        """The ledgers of which entries were skipped."""
        return self._sums.skipped

    def skipped_spans(self) -> list[Span]:
        """The entries that were skipped, in order."""
        return [
            Span(Position(info.id, first), Position(info.id, last))
            for info in self._sums.skipped
            for first, last in info.skipped
        ]

    def not_skipped(self, number: int) -> int:
        """The number of the first entry at or after that one which was not skipped; at most one after the last."""
        for first, last in self.skipped_spans():
            if self.up_to(first) - 1 <= number < self.up_to(last):
                number = self.up_to(last)
        return number

    @property
    def entries(self) -> int:
        """How many entries there are, those that were skipped too."""
        return self._sums.before[len(self) - 1] + self._last.entries if self._last is not None else 0

    @property
    def end(self) -> Position | None:
        """The last entry; None where there is none."""
        return self.previous(Position(self._last.info.id + 1, 0)) if self._last is not None else None

    @property
    def first(self) -> Position:
        """The first entry that the log keeps; in an empty log, the address of the first entry to come."""
        return self.numbered(0) or Position(self._last.info.id if self._last is not None else 0, 0)

    def next(self, position: Position) -> Position:
        """The address after `position`, across the ends of ledgers; it may not be written yet."""
        for view in self.since(position.ledger_id):
            following = position.entry_id + 1 if view.info.id == position.ledger_id else 0
            if not view.info.sealed or following < view.entries:
                return Position(view.info.id, following)
        # `position` is the last entry, and no ledger is open: the ledger of the next owner will follow. Reading from the
        # address below will give its first entry.
        return Position(position.ledger_id, position.entry_id + 1)

    def previous(self, position: Position) -> Position | None:
        """The entry before `position`; None where the log keeps none before it."""
        for view in self.until(position.ledger_id):
            last = view.entries - 1
            if view.info.id == position.ledger_id:
                last = min(last, position.entry_id - 1)
            if last >= 0:
                return Position(view.info.id, last)
        return None

    def up_to(self, position: Position) -> int:
        """How many kept entries lie at or before `position`."""
        sums = self._sums
        at = bisect.bisect_left(sums.ids, position.ledger_id)
        if at == len(sums.ids):
            return self.entries
        inside = 0
        if sums.ids[at] == position.ledger_id:
            inside = min(max(position.entry_id + 1, 0), self[at].entries)
        return sums.before[at] + inside

    def numbered(self, number: int) -> Position | None:
        """The entry with that number, counted from 0 at the first that is kept; None where there are not so many."""
        if not 0 <= number < self.entries:
            return None
        before = self._sums.before
        at = bisect.bisect_right(before, number, 0, len(self)) - 1
        return Position(self._sums.ids[at], number - before[at])

    def kept(self, position: Position) -> Position:
        """`position`, or the last entry before it where a truncation removed it. Only sealed ledgers tell: the end of an
        open one may be old after a power cut, until the log's owner has recovered it."""
        view = self.find(position.ledger_id)
        if position.entry_id < 0 or not len(self) or position.ledger_id < self._sums.ids[0]:
            return position
        if view is not None and (not view.info.sealed or position.entry_id < view.entries):
            return position
        return self.previous(position) or Position(self._sums.ids[0], -1)

    def advance(self, position: Position, entries: int) -> Position:
        """The entry `entries` after `position`, at most the last one. 0: `position`, or the last entry before it."""
        number = min(self.up_to(position) - 1 + entries, self.entries - 1)
        return self.numbered(number) or Position(self.first.ledger_id, -1)
