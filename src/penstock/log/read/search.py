"""Searches over all entries of a log: by a predicate, and by time. They read few entries, through what they are given.

A search takes a moment, in which entries may be trimmed, truncated or skipped. Where it meets such an entry, it begins
again with what the log holds then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from penstock.errors import BadInput, Corruption, Unavailable
from penstock.log.frames.format import Entry, FrameInfo
from penstock.log.ledgers.footer import Footer
from penstock.log.position import Position
from penstock.log.read.positions import LedgerView, LedgerViews
from penstock.log.read.run import FrameRun
from penstock.log.read.time_index import OpenTimeIndex

T = TypeVar("T")


class Searched(Protocol):
    """What a search needs of a `LogReader`."""

    def ledgers(self) -> LedgerViews: ...

    def refresh(self) -> None: ...

    def entries(self, start: Position, end: Position) -> Iterator[Entry]: ...

    def runs(self, start: Position, end: Position) -> Iterator[tuple[FrameRun, int, int]]: ...

    def scan(self, start: Position, end: Position) -> Iterator[FrameInfo]: ...

    def footer(self, view: LedgerView) -> Footer: ...


class Search:
    """The searches of one reader. Thread-safe."""

    def __init__(self, log: Searched) -> None:
        self._log = log
        self._open_times = OpenTimeIndex()

    def newest(self, matches: Callable[[Entry], bool], after: Position | None) -> Position | None:
        def holds(position: Position) -> bool:
            for entry in self._log.entries(position, position):
                return matches(entry)
            raise BadInput(f"entry {position} was skipped during a search", hint="search again")

        return self._settled(lambda views: newest_match(views, holds, after))

    def newest_by_time(self, wall_ms: int) -> Position | None:
        def search(views: LedgerViews) -> Position | None:
            self._open_times.keep_only(view.info.id for view in views if not view.info.sealed)
            return newest_by_time(views, wall_ms, self._entry_before, self._log.scan)

        return self._settled(search)

    def _settled(self, search: Callable[[LedgerViews], T]) -> T:
        """The result of the search, made again as long as entries went meanwhile; else raises what it raised."""
        while True:
            views = self._log.ledgers()
            try:
                return search(views)
            except (BadInput, Corruption, Unavailable):
                self._log.refresh()
                if _what_went(self._log.ledgers()) == _what_went(views):
                    raise

    def _entry_before(self, view: LedgerView, wall_ms: int) -> int:
        if not view.info.sealed:
            return self._open_times_before(view, wall_ms)
        times = self._log.footer(view).times
        at = int((times[:, 0] <= wall_ms).sum()) - 1
        return int(times[at, 1]) if at >= 0 else 0

    def _open_times_before(self, view: LedgerView, wall_ms: int) -> int:
        number, known = view.info.id, self._open_times.known(view.info.id)
        if known < view.entries:
            self._open_times.add(number, self._log.runs(Position(number, known), Position(number, view.entries - 1)))
        return min(self._open_times.before(number, wall_ms), view.entries - 1)


def _what_went(views: LedgerViews) -> tuple[object, ...]:
    """Another one after each trim, truncation and skip."""
    return views.truncations, views.first, views.skipped_spans()


def newest_match(views: LedgerViews, matches: Callable[[Position], bool], after: Position | None) -> Position | None:
    """The newest entry after `after` for which `matches` holds; it must hold up to some point and for none after it.

    A binary search: asks about log2(n) times. Skipped entries are never asked for.
    """
    low = views.up_to(after) if after is not None else 0
    found, high = None, views.entries
    while low < high:
        middle = (low + high) // 2
        number = views.not_skipped(middle)
        position = views.numbered(number) if number < high else None
        if position is not None and matches(position):
            found, low = position, number + 1
        else:
            high = middle
    return found


def newest_by_time(
    views: LedgerViews,
    wall_ms: int,
    entry_before: Callable[[LedgerView, int], int],
    scan: Callable[[Position, Position], Iterator[FrameInfo]],
) -> Position | None:
    """The newest entry such that it and all entries before it were written at or before `wall_ms`, if there is one.

    Most ledgers are decided by their times in the list. In the others `entry_before` gives an entry at or before the last
    one that counts, from where `scan` looks at the headers.
    """
    found: Position | None = None
    for view in views:
        if not view.entries:
            continue
        if view.info.sealed and view.info.last_ms <= wall_ms:
            found = Position(view.info.id, view.entries - 1)
            continue
        entry = 0 if view.info.skipped else entry_before(view, wall_ms)  # the footer may be what is damaged
        for info in scan(Position(view.info.id, entry), Position(view.info.id, view.entries - 1)):
            if info.wall_ms > wall_ms:
                return found
            found = info.position
    return found
