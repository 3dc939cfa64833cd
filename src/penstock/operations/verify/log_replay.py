"""The changes that a sink must hold: the log decoded again, for the tables that the sink takes."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.entries.decode import decode_entries
from penstock.log import LogReader, Position
from penstock.operations.verify.log_history import read_history
from penstock.schema.changes import ChangeBatch
from penstock.schema.model import TableSchema
from penstock.sources.settings import Tables


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
