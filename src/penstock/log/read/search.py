"""Searches over all entries of a log: by a predicate, and by time. They read few entries, through what they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.log.frames.format import FrameInfo
from penstock.log.position import Position
from penstock.log.read.positions import LedgerView, LedgerViews


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
