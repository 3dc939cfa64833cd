"""Arithmetic with positions across ledgers: next, previous, how many between. Pure functions over what a reader sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.log.ledgers.info import LedgerInfo
from penstock.log.position import Position


class LedgerView(NamedTuple):
    """A ledger as a reader sees it now: `entries` durable entries in the first `frames_end` bytes."""

    info: LedgerInfo
    entries: int
    frames_end: int


def next_position(views: Sequence[LedgerView], position: Position) -> Position:
    """The address after `position`, across the ends of ledgers; it may not be written yet."""
    for view in views:
        if view.info.id < position.ledger_id:
            continue
        following = position.entry_id + 1 if view.info.id == position.ledger_id else 0
        if not view.info.sealed or following < view.entries:
            return Position(view.info.id, following)
    # `position` is the last entry, and no ledger is open: the ledger of the next owner will follow. Reading from the
    # address below will give its first entry.
    return Position(position.ledger_id, position.entry_id + 1)


def previous_position(views: Sequence[LedgerView], position: Position) -> Position | None:
    """The entry before `position`; None where the log keeps none before it."""
    for view in reversed(views):
        if view.info.id > position.ledger_id or not view.entries:
            continue
        last = view.entries - 1
        if view.info.id == position.ledger_id:
            last = min(last, position.entry_id - 1)
        if last >= 0:
            return Position(view.info.id, last)
    return None


def first_position(views: Sequence[LedgerView]) -> Position:
    """The first entry that the log keeps; in an empty log, the address of the first entry to come."""
    return next((Position(v.info.id, 0) for v in views if v.entries), Position(views[-1].info.id if views else 0, 0))


def entries_up_to(views: Sequence[LedgerView], position: Position) -> int:
    """How many kept entries lie at or before `position`."""
    count = 0
    for view in views:
        if view.info.id < position.ledger_id:
            count += view.entries
        elif view.info.id == position.ledger_id:
            count += min(max(position.entry_id + 1, 0), view.entries)
    return count


def entry_number(views: Sequence[LedgerView], number: int) -> Position | None:
    """The entry with that number, counted from 0 at the first that is kept; None where there are not so many."""
    if number < 0:
        return None
    for view in views:
        if number < view.entries:
            return Position(view.info.id, number)
        number -= view.entries
    return None


def advance(views: Sequence[LedgerView], position: Position, entries: int) -> Position:
    """The entry `entries` after `position`, at most the last one. 0: `position`, or the last entry before it."""
    total = sum(view.entries for view in views)
    number = min(entries_up_to(views, position) - 1 + entries, total - 1)
    return entry_number(views, number) or Position(first_position(views).ledger_id, -1)
