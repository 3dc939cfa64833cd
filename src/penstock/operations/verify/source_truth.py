"""What the source holds, table by table, for `verify`: the demo's plan, or a server's own tables."""

from __future__ import annotations

from typing import Any, Protocol, Self

from penstock.operations.config.model import Config
from penstock.operations.verify.source_rows import inserts, select_rows
from penstock.schema.changes import ChangeBatch
from penstock.schema.model import TableSchema
from penstock.sources.settings import DemoSettings, MariadbSettings


class SourceTruth(Protocol):
    """The source's tables now. A context manager: it opens what it needs, and closes it at the end."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def rows(self, table: TableSchema) -> ChangeBatch:
        """The table's rows now, as inserts in physical columns."""
        ...


def source_truth(config: Config) -> SourceTruth | None:
    """What the configured source holds; None if it has no tables of its own (binlog files)."""
    source = config.source
    if isinstance(source, DemoSettings):
        return DemoTruth(source)
    if isinstance(source, MariadbSettings):
        return ServerTruth(source)
    return None


class DemoTruth:
    """The tables that the demo source plans, computed without reading a byte of its binlog."""

    def __init__(self, source: DemoSettings) -> None:
        from penstock.sources.demo.truth import demo_truth

        self._tables = demo_truth(source)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def rows(self, table: TableSchema) -> ChangeBatch:
        columns = self._tables[table.name].rows
        return inserts(table, [columns.column(c.name).combine_chunks() for c in table.columns])


class ServerTruth:
    """The server's tables, selected in one consistent snapshot."""

    def __init__(self, source: MariadbSettings) -> None:
        self._source = source
        self._connection: Any = None

    def __enter__(self) -> Self:
        from penstock.sources.mysql.connection import connect

        self._connection = connect(self._source)
        with self._connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def rows(self, table: TableSchema) -> ChangeBatch:
        return select_rows(self._connection, table)
