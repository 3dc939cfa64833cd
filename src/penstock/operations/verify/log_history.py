"""What the whole log says: the schemas of every table by position, and where the last whole transaction ends."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.log import LogReader, Position
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaView
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
