"""Entries that cannot be shown yet: parts of a transaction whose end was not read, and XA groups that are prepared.

They are in memory up to `MEMORY_BYTES_MAX` and then in a temporary file, so the memory does not grow with a
transaction. Space in the file is used again when nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.entries.format import ParsedEntry, parse_entry
from penstock.files import Buffer
from penstock.files.private import overflow_file
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.sources.position import HeldGroup

MEMORY_BYTES_MAX = 64 << 20


class WaitingEntry(NamedTuple):
    position: Position
    parsed: ParsedEntry
    made: tuple[TableSchema, ...]


class _Place(NamedTuple):
    position: Position
    offset: int
    size: int
    made: tuple[TableSchema, ...]


class Waiting:
    """Entries by the commit_ts of their transaction. It is the `HeldGroups` of the cutter, too."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES_MAX) -> None:
        self._file = overflow_file(memory_bytes)
        self._end = 0
        self._places: dict[int, list[_Place]] = {}
        self._groups: dict[str, HeldGroup] = {}

    def close(self) -> None:
        self._file.close()

    def add(self, commit_ts: int, position: Position, data: Sequence[Buffer], made: tuple[TableSchema, ...]) -> None:
        self._file.seek(self._end)
        size = sum(self._file.write(part) for part in data)
        self._places.setdefault(commit_ts, []).append(_Place(position, self._end, size, made))
        self._end += size

    def take(self, commit_ts: int) -> Iterator[WaitingEntry]:
        """The entries of a transaction that has ended, one at a time."""
        for place in self._places.get(commit_ts, ()):
            yield WaitingEntry(place.position, self._read(place), place.made)
        self.drop(commit_ts)

    def drop(self, commit_ts: int) -> None:
        self._places.pop(commit_ts, None)
        if not self._places and self._end:
            self._file.seek(0)
            self._file.truncate()
            self._end = 0

    # -- XA groups -------------------------------------------------------------------------------------------------

    def hold(self, group: HeldGroup) -> None:
        self._groups[group.xid] = group

    def knows(self, xid: str) -> bool:
        return xid in self._groups

    def release(self, xid: str) -> None:
        """The group was committed or rolled back."""
        group = self._groups.pop(xid, None)
        if group is not None:
            self.drop(group.commit_ts)

    def find(self, xid: str) -> HeldGroup:
        """A group that was prepared before the first file has no entries here: nothing of it can be shown."""
        return self._groups.get(xid) or HeldGroup(xid, 0, 0)

    def read(self, group: HeldGroup) -> Iterator[ParsedEntry]:
        for place in self._places.get(group.commit_ts, ()):
            yield self._read(place)

    def _read(self, place: _Place) -> ParsedEntry:
        self._file.seek(place.offset)
        return parse_entry(self._file.read(place.size))
