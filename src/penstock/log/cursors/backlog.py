"""How much a cursor has still to do: functions of a reader and of a cursor's acks, and what status shows of them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.log.cursors.acks import Acks
from penstock.log.position import Position
from penstock.log.read.entry_sizes import entry_sizes
from penstock.log.read.reader import LogReader


@dataclass(frozen=True, slots=True)
class CursorStats:
    """What metrics and status show of a cursor."""

    mark_delete: Position
    backlog_entries: int
    holes: int
    record_bytes: int
    groups_persisted: int
    active_ms: int


def backlog_bytes(reader: LogReader, acks: Acks) -> int:
    """The data of the entries that are not acked. Exact."""
    sizes = entry_sizes(reader)
    total = 0
    for view, count in acks.counts(reader.ledgers()):
        if count == view.entries:
            total += sizes.total(reader, view) if count else 0
        elif count:
            total += sizes.some(reader, view, acks.unacked(view.info.id, 0, view.entries - 1))
    return total


def backlog_about(reader: LogReader, acks: Acks) -> tuple[int, int]:
    """(entries, exact; bytes of frames, estimated: a ledger acked in part counts in proportion)."""
    counts = [(view, count) for view, count in acks.counts(reader.ledgers()) if count]
    sizes = (view.frames_end * count // view.entries for view, count in counts)
    return sum(count for _, count in counts), sum(sizes)
