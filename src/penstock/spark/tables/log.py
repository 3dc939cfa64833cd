"""A log as a reader of tables sees it: which versions its tables have, where they begin, and ranges of it as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.delivery.settings import is_local, local_directory
from penstock.entries.decode import decode_entries
from penstock.errors import BadInput, StaleRun
from penstock.files import REAL_FILES
from penstock.log import LogReader
from penstock.log.ledgers.info import ledger_id_of
from penstock.log.position import Position
from penstock.log.read.reader import END_NAME
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.model import TableSchema
from penstock.schema.pack import PackedSchemas
from penstock.spark.log_follower import LogFollower
from penstock.spark.plan import FrameSummary, PlannedRange, Planner, PlanSettings, following
from penstock.spark.tables.current import CurrentTable, Share
from penstock.spark.tables.history import History, Name, log_origins, shown_statement
from penstock.spark.tables.json_rows import ROWS_AT_ONCE, json_of_batch
from penstock.spark.tables.rows import fitted, rows_of_batch

_UNBOUNDED = 1 << 62
_RANGE_BYTES_MIN = 4 << 20


def find_log(path: str) -> Path | None:
    """The directory of the log, if the path is a state directory or a log; None if it is neither."""
    if not is_local(path):
        return None
    root = local_directory(path)
    for directory in (root, root / "log"):
        if (directory / END_NAME).is_file() or any(ledger_id_of(name) for name in REAL_FILES.list(directory)):
            return directory.absolute()
    return None


@dataclass(frozen=True, slots=True)
class LogContent:
    """What a log holds up to `end`, the offset after its last whole transaction. `made`: every version, from its position on;
    `in_force`: those before the first entry."""

    start: Position
    end: Position
    in_force: tuple[TableSchema, ...]
    made: tuple[tuple[Position, TableSchema], ...]

    def history(self) -> History:
        numbers = {position: number for number, position in enumerate(dict.fromkeys(at for at, _ in self.made))}
        origins = log_origins((numbers[at], table) for at, table in self.made)
        return History.of([*self.in_force, *(table for _, table in self.made)], origins)


def read_content(reader: LogReader, start: Position | None = None) -> LogContent:
    """Follows the log's frames from `start`, or from its first entry, to its end; without their data."""
    while True:
        follower = LogFollower(reader, start if start is not None or reader.complete else reader.first)
        in_force = tuple(one.table for one in follower.in_force())
        first = start or reader.first
        end, made, resumed = first, list[tuple[Position, TableSchema]](), False
        since: list[tuple[Position, TableSchema]] = []
        while frames := follower.more():
            for frame in frames:
                resumed = resumed or frame.resumes
                since += [(frame.position, table) for table in frame.schemas]
                if frame.whole:
                    end = following(frame.position)
                    made, since = made + since, []
        if not resumed:  # else frames that were read already mean something else
            return LogContent(first, end, in_force, tuple(made))


def version_at(reader: LogReader, written: str, offset: Position) -> TableSchema:
    """The columns of a table for who reads on from `offset`: those in force there, or the first that come after it."""
    content = read_content(reader, offset)
    name = content.history().find(written)
    known = [table for table in content.in_force if (table.schema, table.table) == name and table.columns]
    for position, table in content.made:
        if (table.schema, table.table) == name:
            if position > offset and known:
                break
            if table.parked:
                raise _parked(table)
            if table.columns:
                known.append(table)
    if not known:
        raise BadInput(f"{written} has no columns at {offset} or after it", hint="it was dropped, or not made yet")
    return known[-1]


def make_planner(reader: LogReader, start: Position, settings: PlanSettings, seen: SeenFrames) -> Planner:
    """Plans from `start` on. `seen` gets every frame that is planned with."""
    follower = LogFollower(reader, start)

    def more() -> Sequence[FrameSummary]:
        frames = follower.more()
        seen.frames(frames)
        return frames

    return Planner(more, settings, follower.in_force())


class SeenFrames:
    """Whoever plans gets to know the versions that frames make."""

    def frames(self, frames: Sequence[FrameSummary]) -> None:
        pass


def plan_all(reader: LogReader, content: LogContent, partitions: int) -> list[PlannedRange]:
    """The whole content as at most so many ranges."""
    settings = PlanSettings(_UNBOUNDED, _RANGE_BYTES_MIN if partitions > 1 else _UNBOUNDED, partitions, 1)
    while True:
        try:
            return make_planner(reader, content.start, settings, SeenFrames()).ranges(content.start, content.end)
        except StaleRun:
            continue  # a parked table was resumed meanwhile


# -- in a task ------------------------------------------------------------------------------------------------------

_readers: dict[str, LogReader] = {}


def task_reader(directory: str) -> LogReader:
    """The worker's reader of a log, kept for the tasks to come."""
    if directory not in _readers:
        _readers[directory] = LogReader.open(Path(directory))
    return _readers[directory]


def typed_changes(directory: str, planned: PlannedRange, target: TableSchema) -> Iterator[pa.Table]:
    """The changes of one table in a range, with the columns of `target`."""
    for batch in _batches(directory, planned, {(target.schema, target.table)}):
        yield fitted(rows_of_batch(batch), batch.table, target)


def json_changes(directory: str, planned: PlannedRange) -> Iterator[pa.Table]:
    """The changes of all tables in a range."""
    for batch in _batches(directory, planned, None):
        for start in range(0, len(batch), ROWS_AT_ONCE):
            yield json_of_batch(batch.slice(start, min(start + ROWS_AT_ONCE, len(batch))))


def current_rows(directory: str, planned: PlannedRange, lineage: Sequence[TableSchema], share: Share) -> pa.Table:
    """A table as it is at the end of a range that covers all of its changes."""
    order = {table.key: number for number, table in enumerate(lineage)}
    current, reached = CurrentTable(lineage[0], share), 0
    for batch in _batches(directory, planned, {(table.schema, table.table) for table in lineage}):
        number = order.get(batch.table.key)
        if number is None:
            continue  # of an earlier table of the same name
        while reached < number:
            reached += 1
            current.take(lineage[reached], ())
        current.take(lineage[number], [rows_of_batch(batch)])
    for table in lineage[reached + 1 :]:
        current.take(table, ())
    return current.rows()


def _batches(directory: str, planned: PlannedRange, names: set[Name] | None) -> Iterator[ChangeBatch]:
    def wanted(schema: str, table: str) -> bool:
        return names is None or (schema, table) in names

    view = PackedSchemas(planned.pack, planned.schemas)
    entries = task_reader(directory).read(planned.first, planned.end)
    for change in decode_entries((entry for entry in entries if len(entry.data)), view, wanted, planned.void):
        if isinstance(change, SchemaChange):
            if change.table.parked and wanted(change.table.schema, change.table.table):
                raise _parked(change.table)
        elif len(change):
            yield change


def _parked(table: TableSchema) -> BadInput:
    return BadInput(
        f"{table.name} is parked, and its rows cannot be read: {shown_statement(table)} ({table.reason})",
        hint=f"penstock resume {table.name}",
    )
