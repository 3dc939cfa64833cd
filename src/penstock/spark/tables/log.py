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
from penstock.schema.changes import ChangeBatch, SchemaChange, unlogged_columns
from penstock.schema.model import TableSchema
from penstock.schema.pack import PackedSchemas
from penstock.schema.quoting import shell_word
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


def make_planner(
    reader: LogReader, start: Position, settings: PlanSettings, seen: SeenFrames, *, held: bool = False
) -> Planner:
    """Plans from `start` on. `seen` gets every frame that is planned with. `held`: a cursor keeps what is not planned yet."""
    follower = LogFollower(reader, start)
    finished: Position | None = None  # where the last ledger ended, seen while it was there

    def more() -> Sequence[FrameSummary]:
        nonlocal finished
        before = follower.position
        frames = follower.more()
        if frames and not held and frames[0].position.ledger_id != before.ledger_id and before != finished:
            reader.refresh()
            if reader.trimmed_below > before.ledger_id:
                raise trimmed_error(reader, following(before))
        finished = _end_of_ledger(reader, follower.position)
        seen.frames(frames)
        return frames

    return Planner(more, settings, follower.in_force())


def _end_of_ledger(reader: LogReader, position: Position) -> Position | None:
    """The position, if nothing comes after it in its ledger any more."""
    view = next((view for view in reader.ledgers() if view.info.id == position.ledger_id), None)
    ended = view is not None and view.info.sealed and view.entries == position.entry_id + 1
    return position if ended else None


def trimmed_error(reader: LogReader, offset: Position) -> BadInput:
    """Reading on from `offset` would pass over what was trimmed."""
    return BadInput(
        f"this query had read up to {offset}, and the log begins at {reader.first} by now: what is between was trimmed",
        hint="a new checkpointLocation, or a new DataFrame, reads what is here; with the option cursor the log keeps what a "
        "stream still needs",
    )


class SeenFrames:
    """Whoever plans gets to know the versions that frames make."""

    def frames(self, frames: Sequence[FrameSummary]) -> None:
        pass


def plan_all(reader: LogReader, content: LogContent, partitions: int) -> list[PlannedRange]:
    """The whole content as at most so many ranges."""
    if content.start < Position(reader.trimmed_below, -1):  # since the DataFrame was made
        raise trimmed_error(reader, content.start)
    settings = PlanSettings(_UNBOUNDED, _RANGE_BYTES_MIN if partitions > 1 else _UNBOUNDED, partitions, 1)
    while True:
        try:
            return make_planner(reader, content.start, settings, SeenFrames()).ranges(content.start, content.end)
        except StaleRun:
            continue  # a parked table was resumed meanwhile


# -- in a task ------------------------------------------------------------------------------------------------------

_readers: dict[str, LogReader] = {}


def task_reader(directory: str, uuid: str) -> LogReader:
    """The worker's reader of a log, kept for the tasks to come; the worker may outlive the log. Raises `BadInput` where
    another log is there."""
    kept = _readers.get(directory)
    if kept is None or str(kept.uuid) != uuid:
        if kept is not None:
            del _readers[directory]
            kept.close()
        kept = _readers[directory] = LogReader.open(Path(directory))
    check_same_log(kept, uuid)
    return kept


def check_same_log(reader: LogReader, uuid: str) -> None:
    """Raises `BadInput` where the log is not the one that a DataFrame was made of."""
    if str(reader.uuid) != uuid:
        raise BadInput(
            f"{reader.directory} holds another log than when the DataFrame was made: the state directory was made anew",
            hint="load the DataFrame again; a stream with a new checkpointLocation",
        )


def typed_changes(reader: LogReader, planned: PlannedRange, target: TableSchema) -> Iterator[pa.Table]:
    """The changes of one table in a range, with the columns of `target`."""
    for batch in _batches(reader, planned, {(target.schema, target.table)}):
        yield fitted(rows_of_batch(batch), batch.table, target)


def json_changes(reader: LogReader, planned: PlannedRange) -> Iterator[pa.Table]:
    """The changes of all tables in a range."""
    for batch in _batches(reader, planned, None):
        for start in range(0, len(batch), ROWS_AT_ONCE):
            yield json_of_batch(batch.slice(start, min(start + ROWS_AT_ONCE, len(batch))))


def current_rows(reader: LogReader, planned: PlannedRange, lineage: Sequence[TableSchema], share: Share) -> pa.Table:
    """A table as it is at the end of a range that covers all of its changes."""
    order = {table.key: number for number, table in enumerate(lineage)}
    current, reached = CurrentTable(lineage[0], share), 0
    for batch in _batches(reader, planned, {(table.schema, table.table) for table in lineage}):
        number = order.get(batch.table.key)
        if number is None:
            continue  # of an earlier table of the same name
        if unlogged := unlogged_columns(batch):
            raise BadInput(
                f"{batch.table.name}: rows were logged without all of their columns ({', '.join(sorted(unlogged))})",
                hint='binlog_row_image is to be FULL; the changes can be read: view "changes"',
            )
        while reached < number:
            reached += 1
            current.take(lineage[reached], ())
        current.take(lineage[number], [rows_of_batch(batch)])
    for table in lineage[reached + 1 :]:
        current.take(table, ())
    return current.rows()


def _batches(reader: LogReader, planned: PlannedRange, names: set[Name] | None) -> Iterator[ChangeBatch]:
    def wanted(schema: str, table: str) -> bool:
        return names is None or (schema, table) in names

    view = PackedSchemas(planned.pack, planned.schemas)
    entries = reader.read(planned.first, planned.end)
    for change in decode_entries((entry for entry in entries if len(entry.data)), view, wanted, planned.void):
        if isinstance(change, SchemaChange):
            if change.table.parked and wanted(change.table.schema, change.table.table):
                raise _parked(change.table)
        elif len(change):
            yield change


def _parked(table: TableSchema) -> BadInput:
    return BadInput(
        f"{table.name} is parked, and its rows cannot be read: {shown_statement(table)} ({table.reason})",
        hint=f"penstock resume {shell_word(table.name)}",
    )
