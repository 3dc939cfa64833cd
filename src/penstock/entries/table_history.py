"""Every version of every table that a log knows, in the order in which they were made."""

from __future__ import annotations

from contextlib import closing

from penstock.entries.stores import SCHEMA_HISTORY, SCHEMA_RESUMED
from penstock.log import LogReader
from penstock.schema.model import TableSchema
from penstock.schema.parking import resumed
from penstock.state import StateReader


def read_history(reader: LogReader) -> tuple[TableSchema, ...]:
    """At the log's end; what was parked and resumed is as its resumption made it. The history only grows: nothing that was
    trimmed is missing."""
    with closing(StateReader.open(reader)) as state:
        resumptions = {table.key: table for _, table in state.store(SCHEMA_RESUMED).items()}
        made = (resumed(table, resumptions) for _, table in state.store(SCHEMA_HISTORY).items())
        return tuple(sorted(made, key=lambda table: table.version))
