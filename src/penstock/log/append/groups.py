"""A group of appends: what of it fits into a ledger, and its answers. Called once a group, not once an entry."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from penstock.errors import StorageFailed
from penstock.files import Buffer
from penstock.log.append.checking import unwritable
from penstock.log.append.request import AppendRequest, Span
from penstock.log.frames.format import FRAME_BYTES_MIN, encode_frame
from penstock.log.frames.writer import NewEntry
from penstock.log.ledgers.store import OpenLedger
from penstock.log.pending import complete_all
from penstock.log.position import Position
from penstock.log.settings import LogSettings

_COUNT, _CHANGES, _SIZE, _DATA = map(attrgetter, ("count", "changes", "size", "data"))


def entries_that_fit(
    group: list[AppendRequest], ledger: OpenLedger, settings: LogSettings, *, may_roll: bool
) -> tuple[list[NewEntry | Buffer], int]:
    """(the entries of the requests that still go into this ledger, how many requests that are): at least one request.

    All of them where the ledger may not roll now.
    """
    entries: list[NewEntry | Buffer] = []
    bytes_max, entries_max = settings.ledger_bytes_max, settings.ledger_entries_max
    end, before = ledger.end, ledger.next_entry
    if not any(map(_COUNT, group)) and not any(map(_CHANGES, group)):
        size = sum(map(_SIZE, group)) + len(group) * FRAME_BYTES_MIN
        if not may_roll or (end + size < bytes_max and before + len(group) < entries_max):
            return list(map(_DATA, group)), len(group)
    for taken, item in enumerate(group):
        if (end >= bytes_max or before + len(entries) >= entries_max) and may_roll and taken:
            return entries, taken
        if item.count > 0:
            entries += item.data
            end += item.size + item.count * FRAME_BYTES_MIN
        else:
            plain = not item.changes and not item.count
            entries.append(item.data if plain else NewEntry(item.data, item.changes, -item.count or 1))
            end += item.size + FRAME_BYTES_MIN
    return entries, len(group)


def answer(items: list[AppendRequest], ledger_id: int, first: int) -> None:
    """Completes the requests, in order: their entries are durable, one after the other from entry `first` on."""
    if any(map(_CHANGES, items)):
        for item in items:
            item.changes = ()
    if not any(map(_COUNT, items)):
        for item in items:
            item.ledger_id = ledger_id
            item.data = item.after = None
        complete_all(items, range(first, first + len(items)))
        return
    answers: list[Any] = []
    for item in items:
        item.data = item.after = None
        if item.count > 0:
            answers.append(Span(Position(ledger_id, first), Position(ledger_id, first + item.count - 1)))
        else:
            answers.append(first)
            item.ledger_id = ledger_id
        first += max(item.count, 1)
    complete_all(items, answers)


def split_unwritable(
    group: list[AppendRequest], error: Exception
) -> tuple[list[AppendRequest], dict[AppendRequest, BaseException]]:
    """(the requests that can be encoded, the others and why), for a group that could not be, because of `error`.

    Where each of them alone can be encoded, none is written: it was too much for the memory, or a buffer came back.
    """
    kept: list[AppendRequest] = []
    failed: dict[AppendRequest, BaseException] = {}
    for item in group:
        try:
            for data in item.data if item.count > 0 else (item.data,):
                encode_frame(
                    0, 0, 0, 0, 0, (data,) if isinstance(data, bytes | bytearray | memoryview) else data, item.changes
                )
        except Exception as reason:
            failed[item] = unwritable(reason)
        else:
            kept.append(item)
    if failed:
        return kept, failed
    failure = StorageFailed(f"entries could not be made into frames: {type(error).__name__}: {error}", hint="try again")
    failure.__cause__ = error
    return [], dict.fromkeys(group, failure)


def split_orphans(group: list[AppendRequest]) -> tuple[list[AppendRequest], dict[AppendRequest, BaseException]]:
    """(the requests that can be written, those whose `after` failed and why). Orphans may come after each other."""
    kept: list[AppendRequest] = []
    orphans: dict[AppendRequest, BaseException] = {}
    for item in group:
        before: Any = item.after
        error = orphans.get(before)
        if error is None and before is not None and before.done():
            error = before.exception(0)
        if error is None:
            kept.append(item)
        else:
            orphans[item] = error
    return kept, orphans
