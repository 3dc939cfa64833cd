"""How far a changefeed is behind: the age of the oldest commit that is not at the sink, 0 when there is none."""

from __future__ import annotations

from penstock.changefeed.keeper import Keeper
from penstock.commit_ts import milliseconds_of
from penstock.entries.format import BadEntry, parse_entry
from penstock.log import Entry, LogReader
from penstock.log.position import Position


class Lag:
    """Each call reads at most one entry, and none while mark-delete does not move. For one thread."""

    def __init__(self, keeper: Keeper, reader: LogReader) -> None:
        self._keeper = keeper
        self._reader = reader
        self._oldest: tuple[Position, int] | None = None  # mark-delete, and the commit time in ms of the entry after it

    def seconds(self, now_ms: int) -> float:
        mark = self._keeper.mark_delete
        if self._oldest is None or self._oldest[0] != mark:
            self._oldest = None
            end = self._reader.end()
            if not self._reader.count(mark, end):  # not by comparing positions: an empty log may have had ledgers
                return 0.0
            first = self._reader.next(mark)
            entry = next(iter(self._reader.read(first, first)), None)
            if entry is None:
                return 0.0
            self._oldest = (mark, committed_ms(entry))
        return max(0.0, (now_ms - self._oldest[1]) / 1000)


def committed_ms(entry: Entry) -> int:
    """When the entry's first transaction was committed, or when the entry was appended if it holds no transaction."""
    if not len(entry.data):
        return entry.wall_ms
    try:
        transactions = parse_entry(entry.data).transactions
    except BadEntry:
        return entry.wall_ms  # only a figure for status; the readers that need its rows refuse the entry by name
    return milliseconds_of(int(transactions["commit_ts"][0])) if len(transactions) else entry.wall_ms
