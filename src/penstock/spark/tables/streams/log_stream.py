"""A stream over a log: bounded batches, which end before a statement that changes the columns of the table, and a cursor
that says to the log what this stream still needs.

The process that Spark plans with holds it; whatever happens to that process, offsets and the cursor are enough to go on.
Spark asks for the next batch only after it has committed the one before. So what it asks from is acknowledged there and
then: Spark's own `commit` comes one batch late, and never for the last one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import BadInput, StaleRun, Unavailable
from penstock.log import Cursor, CursorTable, LogReader
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.schema.quoting import shell_word
from penstock.spark.plan import FrameSummary, PlannedRange, Planner, PlanSettings, following, preceding
from penstock.spark.tables.history import Name, shown_statement
from penstock.spark.tables.log import SeenFrames, make_planner, trimmed_error
from penstock.spark.tables.options import Options
from penstock.spark.tables.streams.evolution import START_AGAIN, ColumnsChanged, columns_changed, has_other_columns

_RANGE_BYTES_MIN = 4 << 20
_RANGES = 8  # of a batch at most, where the option partitions does not say it
_OPEN_SECONDS_MAX = 30.0  # for the process of a query that was just stopped to let go of its cursor
_OPEN_PAUSE_SECONDS = 0.2
_NEW_CHECKPOINT = "start with a new checkpointLocation: it reads what is here"


def first_offset(reader: LogReader, options: Options) -> Position:
    """Where a new stream begins: after what its cursor has acknowledged, or where the options say."""
    if options.cursor is not None:
        acked = CursorTable(reader).positions().get(options.cursor)
        if acked is not None:
            return following(acked)
    if options.start == "earliest":
        return reader.first
    if options.start == "latest":
        return following(reader.end())
    if options.start > following(reader.end()):
        raise BadInput(f"option startingPosition is {options.start}, and the log ends at {reader.end()}")
    if options.start < reader.first and not reader.complete:
        raise BadInput(
            f"option startingPosition is {options.start}, and the log begins at {reader.first} by now",
            hint="what was before is trimmed: start at earliest, or read a sink",
        )
    return options.start


class LogStream(SeenFrames):
    """`target`: the version whose columns the stream has; None for all changes of all tables."""

    def __init__(self, directory: Path, options: Options, target: TableSchema | None) -> None:
        self._reader = LogReader.open(directory)
        self._options = options
        self._target = target
        self._name: Name | None = (target.schema, target.table) if target is not None else None
        self._planner: Planner | None = None
        self._changes: list[tuple[Position, TableSchema]] = []  # versions with other columns, or none that are known
        self._last: Position | None = None  # where a stream that ends by itself does
        self._cursor: Cursor | None = None

    @property
    def log_uuid(self) -> str:
        return str(self._reader.uuid)

    def initial(self) -> Position:
        """The offset of a new stream. With a cursor, it exists durably when this returns."""
        offset = first_offset(self._reader, self._options)
        if self._options.cursor is not None:
            return following(self._open_cursor(offset).mark_delete_position)
        return offset

    def stop_at_end(self) -> None:
        """The stream goes no further than to what is in the log now."""
        self._last = following(self._reader.end())

    def latest(self) -> Position:
        return following(self._reader.end())

    def end_of_batch(self, start: Position) -> Position:
        """The offset where the next batch ends; `start` where there is nothing new. Everything before `start` is acked.

        Raises `ColumnsChanged` where the table has other columns from `start` on.
        """
        self.ack(start)
        end = self._plan(start).end_of_batch(start)
        if self._last is not None:
            end = max(start, min(end, self._last))
        return self._before_change(start, end)

    def ranges(self, start: Position, end: Position) -> list[PlannedRange]:
        found = self._plan(start).ranges(start, end)
        if self._before_change(start, end) != end:  # the columns were declared for another place of the log
            raise self._changed(next(table for at, table in self._changes if at >= start), start)
        return found

    def ack(self, offset: Position) -> None:
        """Nobody needs what is before `offset` any more; durable when it returns. Without a cursor it does nothing."""
        if self._options.cursor is None:
            return
        cursor = self._open_cursor(offset)
        position = preceding(offset)
        if position > cursor.mark_delete_position:
            cursor.mark_delete(position).result()

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None
        self._reader.close()

    def frames(self, frames: Sequence[FrameSummary]) -> None:
        for frame in frames:
            for table in frame.schemas:
                mine = self._name is None or (table.schema, table.table) == self._name
                if mine and (table.parked or has_other_columns(table, self._target)):
                    self._changes.append((frame.position, table))

    def _plan(self, start: Position) -> Planner:
        """The planner, made anew where a parked table was resumed: frames that it knows then mean something else."""
        if self._planner is None:
            self._check_there(start)
            partitions = self._options.partitions or _RANGES
            settings = PlanSettings(self._options.batch_bytes_max, _RANGE_BYTES_MIN, partitions, 1)
            self._changes = []
            self._planner = make_planner(self._reader, start, settings, self, held=self._cursor is not None)
        try:
            self._planner.end_of_batch(start)
        except StaleRun:
            self._planner = None
            return self._plan(start)
        return self._planner

    def _check_there(self, start: Position) -> None:
        """Raises `BadInput` where entries after `start` are not in the log any more: reading on would pass over them.

        An offset at the end of a ledger that is gone cannot be told from one before its end. Without a cursor both are
        refused. With one, nothing that it had not acknowledged was trimmed: there an offset is refused only if the cursor has
        gone on into what is kept, as it has where an old checkpoint came back.
        """
        is_trimmed = self._is_trimmed(start)
        if start > following(self._reader.end()):
            raise BadInput(
                f"this query had read up to {start}, and the log ends at {self._reader.end()}: it is another log",
                hint=_NEW_CHECKPOINT,
            )
        if not is_trimmed:
            return
        if self._cursor is not None and self._cursor.mark_delete_position < self._reader.first:
            return
        raise trimmed_error(self._reader, start)

    def _before_change(self, start: Position, end: Position) -> Position:
        for position, table in self._changes:
            if position >= start and position < end:
                if position == start:
                    raise self._changed(table, position)
                return position
        return end

    def _changed(self, table: TableSchema, position: Position) -> ColumnsChanged:
        if table.parked:
            return ColumnsChanged(
                f"{table.name} is parked at {position}, and what follows cannot be read: {shown_statement(table)} "
                f"({table.reason})",
                hint=f"penstock resume {shell_word(table.name)}, then start the query again",
            )
        how = START_AGAIN
        if self._options.columns_at != "newest" and self._options.cursor is None:
            how = f'{how} (.option("columnsAt", "{position}"))'
        return columns_changed(table, str(position), how)

    def _open_cursor(self, offset: Position) -> Cursor:
        """The cursor, made at `offset` where there is none: because the stream is new, or because somebody deleted it."""
        if self._cursor is None:
            assert self._options.cursor is not None
            table = CursorTable(self._reader)
            is_new = self._options.cursor not in {info.name for info in table.infos()}
            cursor = self._opened(table, self._options.cursor, offset)
            if is_new and self._is_trimmed(offset):  # nobody held it: what it would begin with is gone
                cursor.close()
                table.delete(self._options.cursor)
                raise trimmed_error(self._reader, offset)
            self._cursor = cursor
        return self._cursor

    def _is_trimmed(self, offset: Position) -> bool:
        self._reader.refresh()
        return offset < Position(self._reader.trimmed_below, -1)

    @staticmethod
    def _opened(table: CursorTable, name: str, offset: Position) -> Cursor:
        """Waits a while for the process of a query that was just stopped."""
        deadline = time.monotonic() + _OPEN_SECONDS_MAX
        while True:
            try:
                return table.open(name, preceding(offset))
            except Unavailable as error:
                if time.monotonic() >= deadline:
                    raise BadInput(
                        f"option cursor is {name!r}, and another query reads with it: {error.message}",
                        hint="stop the other query, or give each query a cursor of its own",
                    ) from error
                time.sleep(_OPEN_PAUSE_SECONDS)
