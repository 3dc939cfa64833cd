"""The changes that a sink must hold: the log decoded again with the schemas of its own history, for the tables that the
sink takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.entries.decode import decode_entries
from penstock.log import Entry, LogReader, Position
from penstock.operations.verify.lineage import Lineage
from penstock.rules.rules import Rules
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaView
from penstock.sources.settings import Tables
from penstock.spark.log_follower import LogFollower


@dataclass(frozen=True, slots=True)
class LogHistory:
    """`complete_end` is the last entry after which no transaction is open; entry -1 if there is none.

    `in_force` are the tables before the first entry that is still there; empty if nothing was trimmed. `void`: the commit_ts
    of transactions that never happened.
    """

    schemas: SchemaView
    in_force: tuple[TableSchema, ...]
    complete_end: Position
    void: frozenset[int] = frozenset()


def read_history(reader: LogReader) -> LogHistory:
    """Follows the log's frames, without their data, to its durable end."""
    while (found := _read_history(reader)) is None:
        pass
    return found


def _read_history(reader: LogReader) -> LogHistory | None:
    """None if a parked table was resumed meanwhile: then frames that were read already mean something else."""
    # From the first entry that is left, not from a later checkpoint: entries before that checkpoint have older schemas.
    follower = LogFollower(reader, None if reader.complete else reader.first)
    in_force = follower.in_force()
    schemas = SchemaView(in_force)
    end = Position(reader.first.ledger_id, -1)
    void: set[int] = set()
    while frames := follower.more():
        for frame in frames:
            if frame.resumes:
                return None
            void.update(frame.void)
            for table in frame.schemas:
                schemas.add(frame.position, table)
            if frame.whole:
                end = frame.position
    return LogHistory(schemas, tuple(one.table for one in in_force), end, frozenset(void))


class LogReplay:
    """Reads the log up to the end of its last whole transaction. Changes up to `through` are at the sink.

    Changes are as the sink sees them, by its rules; `latest` and `lineage` are of the source.

    `latest` is the newest schema of each table, once `changes` is exhausted; `parked` are the tables whose rows the log
    holds back, because a statement before them was not understood. `lineage` knows under which names their rows are.
    `entries_read` of `entries_count` are behind `changes`.
    """

    def __init__(
        self, reader: LogReader, filters: tuple[Tables, ...], through: Position, rules: Rules | None = None
    ) -> None:
        self.rules = rules if rules is not None else Rules()
        self._reader = reader
        self._filters = filters
        self._through = through
        self._history = read_history(reader)
        self._end = reader.end()
        self.latest: dict[tuple[str, str], TableSchema] = {
            (table.schema, table.table): table for table in self._history.in_force if self._takes(table)
        }
        self._passage = self.rules.passage(self._history.schemas.names(), self._exists)
        self.parked: dict[str, TableSchema] = {}
        self.entries_read = 0
        self.lineage = Lineage(self._takes)

    @property
    def entries_count(self) -> int:
        first, end = self._reader.first, self._history.complete_end
        return self._reader.count(Position(first.ledger_id, first.entry_id - 1), end) if first <= end else 0

    def has_grown(self) -> bool:
        """Whether the log has entries now that were not there to be replayed: the source has gone on."""
        return self._reader.end() > self._end

    def changes(self) -> Iterator[tuple[ChangeBatch, bool]]:
        """Yields each batch of changes, and whether it may still be on its way to the sink."""
        end = self._history.complete_end
        for batch in self._between(self._reader.first, min(self._through, end)):
            yield batch, False
        if self._through < end:
            for batch in self._between(self._reader.next(self._through), end):
                yield batch, True

    def _between(self, start: Position, end: Position) -> Iterator[ChangeBatch]:
        for item in decode_entries(self._entries(start, end), self._history.schemas, void=self._history.void):
            if isinstance(item, SchemaChange) and not item.table.parked:
                self.lineage.take(item)
            if not self._takes(item.table):
                continue
            self.latest[item.table.schema, item.table.table] = item.table
            for seen in self._passage.apply(item):
                if isinstance(seen, ChangeBatch):
                    yield seen
                elif seen.table.parked:
                    self.parked.setdefault(seen.table.name, seen.table)  # the statement that parked it, not a later one

    def _exists(self, schema: str, table: str) -> bool:
        return self._history.schemas.find(schema, table, self._history.complete_end) is not None

    def _entries(self, start: Position, end: Position) -> Iterator[Entry]:
        for entry in self._reader.read(start, end):
            self.entries_read += 1
            yield entry

    def _takes(self, table: TableSchema) -> bool:
        return all(tables.matches(table.schema, table.table) for tables in self._filters)
