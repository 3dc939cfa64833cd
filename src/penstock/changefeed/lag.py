"""How far a changefeed is behind: the age of the oldest commit that is not at the sink, 0 when there is none."""

from __future__ import annotations

from penstock.changefeed.keeper import Keeper
from penstock.entries.format import BadEntry, parse_entry
from penstock.log import Entry, LogReader
from penstock.log.position import Position

COMMIT_TS_SHIFT = 18  # commit_ts is milliseconds << 18 + counter


class Lag:
    """Reads at most one entry a question, and none while mark-delete stands still. For one thread."""

    def __init__(self, keeper: Keeper, reader: LogReader) -> None:
        self._keeper = keeper
        self._reader = reader
        self._oldest: tuple[Position, int] | None = None  # mark-delete, and when what follows was committed

    def seconds(self, now_ms: int) -> float:
        mark = self._keeper.mark_delete
        if self._oldest is None or self._oldest[0] != mark:
            self._oldest = None
            first = self._reader.next(mark)
            if first > self._reader.end():
                return 0.0
            entry = next(iter(self._reader.read(first, first)), None)
            if entry is None:
                return 0.0
            self._oldest = (mark, committed_ms(entry))
        return max(0.0, (now_ms - self._oldest[1]) / 1000)


def committed_ms(entry: Entry) -> int:
    """When the entry's first transaction was committed; when it was appended, where it carries none."""
    if not len(entry.data):
        return entry.wall_ms
    try:
        transactions = parse_entry(entry.data).transactions
    except BadEntry:
        return entry.wall_ms  # only a figure to show; whoever needs the rows refuses the entry by name
    return int(transactions["commit_ts"][0]) >> COMMIT_TS_SHIFT if len(transactions) else entry.wall_ms
