"""What the log as a whole says: the schemas of every table by position, and where the last whole transaction ends."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.log import LogReader, Position
from penstock.schema.view import SchemaView
from penstock.spark.feed import LogFeed


@dataclass(frozen=True, slots=True)
class LogHistory:
    """`complete_end` is the last entry after which no transaction is open; entry -1 where there is none."""

    schemas: SchemaView
    complete_end: Position


def read_history(reader: LogReader) -> LogHistory:
    """Follows the log's frames, without their data, to its durable end."""
    feed = LogFeed(reader)
    schemas = SchemaView(feed.in_force())
    end = Position(reader.first.ledger_id, -1)
    while frames := feed.more():
        for frame in frames:
            for table in frame.schemas:
                schemas.add(frame.position, table)
            if frame.whole:
                end = frame.position
    return LogHistory(schemas, end)
