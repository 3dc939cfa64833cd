"""Planning: which entries the next batch covers, and how they are split into ranges.

An offset names the position to read next. It is always the entry after the last one of the previous batch, whether or
not such an entry exists (the log may continue in a later ledger). A batch ends at or before the end of the last
complete transaction, and covers at most `batch_bytes_max` unless a single entry is larger. Ranges are contiguous and
together cover the batch; each carries the table schemas in force at its first entry and those that are made inside it.

Nothing here is durable: a lost planner is rebuilt from the log and an offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaAt
from penstock.spark.job import MIB


@dataclass(frozen=True, slots=True)
class FrameSummary:
    """What planning knows of a frame. `whole`: no transaction is open after it."""

    position: Position
    data_bytes: int
    whole: bool
    schemas: tuple[TableSchema, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanSettings:
    batch_bytes_max: int = 256 * MIB
    range_bytes_min: int = 4 * MIB  # below this a second task costs more than it saves
    parallelism: int = 2
    ranges_per_core: int = 2  # so that a slow range does not leave a core idle


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """Entries `start` to `end`, both included. `schemas` are in the order of their positions."""

    start: Position
    end: Position
    data_bytes: int
    schemas: tuple[SchemaAt, ...]


def following(position: Position) -> Position:
    """The offset after an entry."""
    return Position(position.ledger_id, position.entry_id + 1)


def preceding(offset: Position) -> Position:
    """The last entry before an offset; entry -1 where the offset is the start of a ledger."""
    return Position(offset.ledger_id, offset.entry_id - 1)


class Planner:
    """Plans batches. `more` gives the log's next frames in order, and an empty sequence at its durable end."""

    def __init__(
        self, more: Callable[[], Sequence[FrameSummary]], settings: PlanSettings, in_force: Iterable[SchemaAt] = ()
    ) -> None:
        self._more = more
        self._settings = settings
        self._ahead: deque[FrameSummary] = deque()
        # The schemas in force before the first frame of `_ahead`.
        self._behind = {(one.table.schema, one.table.table): one for one in in_force}

    def end_of_batch(self, start: Position) -> Position:
        """The offset where a batch from `start` ends; `start` itself where there is nothing to plan."""
        self._forget_before(start)
        end: Position | None = None
        pending: Position | None = None  # the last frame that fits; it counts once a transaction ends at or after it
        total = 0
        index = 0
        while True:
            if index == len(self._ahead):
                frames = self._more()
                if not frames:
                    break
                self._ahead.extend(frames)
                self._forget_before(start)
                continue
            frame = self._ahead[index]
            index += 1
            total += frame.data_bytes
            if total <= self._settings.batch_bytes_max or pending is None:
                pending = frame.position
            if frame.whole:
                end = pending
                if total >= self._settings.batch_bytes_max:
                    break
        return start if end is None else following(end)

    def ranges(self, start: Position, end: Position) -> list[PlannedRange]:
        """The batch between two offsets as contiguous ranges of about the same size. Deterministic.

        Empty where the two offsets are equal: Spark plans the first batch of a query even if nothing is new.
        """
        if start == end:
            return []
        self._forget_before(start)
        while not (self._ahead and self._ahead[-1].position >= preceding(end)):
            frames = self._more()
            if not frames:
                break
            self._ahead.extend(frames)
            self._forget_before(start)
        frames = [frame for frame in self._ahead if frame.position < end]
        in_force = dict(self._behind)
        total = sum(frame.data_bytes for frame in frames)
        most = self._settings.parallelism * self._settings.ranges_per_core
        count = max(1, min(most, len(frames), total // self._settings.range_bytes_min))
        ranges: list[PlannedRange] = []
        first, size, made = start, 0, list[SchemaAt]()
        known = list(in_force.values())
        done = 0
        for index, frame in enumerate(frames):
            size += frame.data_bytes
            made.extend(SchemaAt(frame.position, table) for table in frame.schemas)
            left = len(frames) - index - 1
            full = done + size >= total * (len(ranges) + 1) / count
            if left and not (full and len(ranges) < count - 1):
                continue
            last = frame.position if left else preceding(end)
            ranges.append(PlannedRange(first, last, size, tuple(sorted([*known, *made], key=lambda s: s.position))))
            for schema in made:
                in_force[schema.table.schema, schema.table.table] = schema
            done += size
            first, size, made, known = following(last), 0, [], list(in_force.values())
        return ranges or [PlannedRange(start, preceding(end), 0, tuple(known))]

    def _forget_before(self, start: Position) -> None:
        while self._ahead and self._ahead[0].position < start:
            frame = self._ahead.popleft()
            for table in frame.schemas:
                self._behind[table.schema, table.table] = SchemaAt(frame.position, table)
