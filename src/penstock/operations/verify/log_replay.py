"""The changes that a sink must hold: the log decoded again with the schemas of its own history, for the tables that the
sink takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.entries.decode import decode_entries
from penstock.log import LogReader, Position
from penstock.schema.changes import ChangeBatch
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaView
from penstock.sources.settings import Tables
from penstock.spark.log_follower import LogFollower


@dataclass(frozen=True, slots=True)
class LogHistory:
    """`complete_end` is the last entry after which no transaction is open; entry -1 if there is none.

    `in_force` are the tables before the first entry that is still there; empty if nothing was trimmed.
    """

    schemas: SchemaView
    in_force: tuple[TableSchema, ...]
    complete_end: Position


def read_history(reader: LogReader) -> LogHistory:
    """Follows the log's frames, without their data, to its durable end."""
    # From the first entry that is left, not from a later checkpoint: entries before that checkpoint have older schemas.
    follower = LogFollower(reader, None if reader.complete else reader.first)
    in_force = follower.in_force()
    schemas = SchemaView(in_force)
    end = Position(reader.first.ledger_id, -1)
    while frames := follower.more():
        for frame in frames:
            for table in frame.schemas:
                schemas.add(frame.position, table)
            if frame.whole:
                end = frame.position
    return LogHistory(schemas, tuple(one.table for one in in_force), end)


class LogReplay:
    """Reads the log up to the end of its last whole transaction. Changes up to `through` are at the sink.

    `latest` is the newest schema of each table, once `changes` is exhausted.
    """

    def __init__(self, reader: LogReader, filters: tuple[Tables, ...], through: Position) -> None:
        self._reader = reader
        self._filters = filters
        self._through = through
        self._history = read_history(reader)
        self.latest: dict[tuple[str, str], TableSchema] = {
            (table.schema, table.table): table for table in self._history.in_force if self._takes(table)
        }

    def changes(self) -> Iterator[tuple[ChangeBatch, bool]]:
        """Yields each batch of changes, and whether it may still be on its way to the sink."""
        end = self._history.complete_end
        for batch in self._between(self._reader.first, min(self._through, end)):
            yield batch, False
        if self._through < end:
            for batch in self._between(self._reader.next(self._through), end):
                yield batch, True

    def _between(self, start: Position, end: Position) -> Iterator[ChangeBatch]:
        for item in decode_entries(self._reader.read(start, end), self._history.schemas):
            if not self._takes(item.table):
                continue
            self.latest[item.table.schema, item.table.table] = item.table
            if isinstance(item, ChangeBatch):
                yield item

    def _takes(self, table: TableSchema) -> bool:
        return all(tables.matches(table.schema, table.table) for tables in self._filters)
