"""How far a changefeed is behind: the age of the oldest commit that is not at the sink, 0 when there is none."""

from __future__ import annotations

from penstock.changefeed.keeper import Keeper
from penstock.commit_ts import milliseconds_of
from penstock.entries.format import BadEntry, parse_entry
from penstock.errors import PenstockError
from penstock.log import Entry, LogReader
from penstock.log.position import Position


class Lag:
    """Each call reads at most one entry, and none while mark-delete does not move. For one thread."""

    def __init__(self, keeper: Keeper, reader: LogReader) -> None:
        self._keeper = keeper
        self._reader = reader
        self._read_after: Position | None = None  # mark-delete when the entry after it was read
        self._since_ms: int | None = None  # when that entry was committed; None: none waits

    def seconds(self, now_ms: int) -> float:
        mark = self._keeper.mark_delete
        if self._read_after != mark:
            self._read(mark, now_ms)
        return 0.0 if self._since_ms is None else max(0.0, (now_ms - self._since_ms) / 1000)

    def _read(self, mark: Position, now_ms: int) -> None:
        self._read_after = None
        if not self._reader.count(mark, self._reader.end()):  # not by positions: an empty log may have had ledgers
            self._since_ms = None
            return
        first = self._reader.next(mark)
        try:
            entry = next(iter(self._reader.read(first, first)), None)
        except PenstockError:  # only a figure for status: the readers that need the rows say what is wrong
            self._since_ms = now_ms if self._since_ms is None else self._since_ms
            return
        self._since_ms = None if entry is None else committed_ms(entry)
        self._read_after = mark


def committed_ms(entry: Entry) -> int:
    """When the entry's first transaction was committed, or when the entry was appended if it holds no transaction."""
    if not len(entry.data):
        return entry.wall_ms
    try:
        transactions = parse_entry(entry.data).transactions
    except BadEntry:
        return entry.wall_ms  # only a figure for status; the readers that need its rows refuse the entry by name
    return milliseconds_of(int(transactions["commit_ts"][0])) if len(transactions) else entry.wall_ms
