"""One chunk after the other of a table, over a connection of its own.

A chunk must show everything that the log has already (*low*): what it shows less would come twice, or be lost. A server
writes a transaction to its binlog before it shows it to others, so this is asked of the server and never guessed.

- MariaDB: START TRANSACTION WITH CONSISTENT SNAPSHOT, whose place in the binlog is `binlog_snapshot_position`: exactly
  what is before it is shown.
- MySQL: a transaction is in `gtid_executed` only once others see it. The chunk is read when that has all of low's.

Where the binlog ends after the SELECT (*high*) is beyond everything that it showed.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pymysql
from pymysql.connections import Connection

from penstock.binlog.rows.arrays import BadValue
from penstock.errors import BadInput, Unavailable
from penstock.schema.model import TableSchema
from penstock.sources.load import CHUNK_BYTES_MAX, LoadedRows, TableLoad, TableMoved, has_passed
from penstock.sources.mysql.connection import connect, rows, translate_errors
from penstock.sources.mysql.family import family_of
from penstock.sources.mysql.load.columns import column_form
from penstock.sources.mysql.load.keys import chunk_query
from penstock.sources.mysql.load.result import Result, select
from penstock.sources.mysql.mariadb import MARIADB
from penstock.sources.position import SourcePosition
from penstock.sources.settings import ServerSettings
from penstock.sources.source import SourceError

_VISIBLE_SECONDS_MAX = 30.0
_VISIBLE_PAUSE_SECONDS = 0.005
_MOVED = frozenset({1054, 1146, 1176, 1412, 1049, 1356})  # no such column, table, index, database; changed meanwhile
_SESSION = (
    "SET time_zone = '+00:00', sql_mode = '', character_set_results = NULL",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)


class ServerTableReader:
    """Connects with the first chunk, and again after an error."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._connection: Connection[Any] | None = None
        self._mariadb = False
        self._identity = ""

    def read(self, table: TableSchema, load: TableLoad, low: SourcePosition, rows_max: int) -> LoadedRows:
        ordinals = {column.name.lower(): i for i, column in enumerate(table.columns)}
        key = [ordinals[name.lower()] for name in load.key]
        forms = [column_form(column) for column in table.columns]
        sql = chunk_query(table, forms, key, load.after, rows_max)
        try:
            connection = self._connected(low)
            self._wait_until_visible(connection, low)
            result = self._select(connection, sql, table)
            if result.whole:
                rows(connection, "COMMIT")
            else:  # the rest of the rows is on its way, and nobody wants it
                self.close()
            high = self.now()
        except BaseException:
            self.close()
            raise
        last = result.count - 1
        after = tuple(forms[i].literal(result.columns[i].text(last)) for i in key) if result.count else load.after
        columns = []
        for column, form, values in zip(table.columns, forms, result.columns, strict=True):
            try:
                columns.append(form.read(values))
            except BadValue as error:
                raise BadInput(
                    f"{table.name}, column {column.name}: {error}",
                    hint="leave the table out of the load (source.snapshot.tables.exclude), and tell us",
                ) from error
        return LoadedRows(columns, after, result.whole and result.count < rows_max, high, result.bytes)

    def now(self) -> SourcePosition:
        connection = self._connection or self._connected(None)
        found: list[tuple[Any, ...]] = []
        with contextlib.suppress(SourceError):
            found = _texts(connection, "SHOW MASTER STATUS")
        if not found:  # MySQL 8.4 has only the new words
            found = _texts(connection, "SHOW BINARY LOG STATUS")
        return SourcePosition(str(found[0][0]), int(found[0][1]), source=self._identity)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            private: Any = connection
            with contextlib.suppress(Exception):
                private._force_close()

    def _connected(self, low: SourcePosition | None) -> Connection[Any]:
        if self._connection is None:
            connection = connect(self._settings)
            try:
                family = family_of(connection)
                self._mariadb = family is MARIADB
                self._identity = family.identity(connection)
                for statement in _SESSION:
                    rows(connection, statement)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        if low is not None and low.source != self._identity:
            raise Unavailable(f"the load reads from {self._identity}, and capture from {low.source}")
        return self._connection

    def _wait_until_visible(self, connection: Connection[Any], low: SourcePosition) -> None:
        """Returns once what the next SELECT shows has everything before `low`."""
        until = time.monotonic() + _VISIBLE_SECONDS_MAX
        while not self._is_visible(connection, low):
            if time.monotonic() > until:
                raise Unavailable(
                    f"the server does not show what it wrote before {low}, for {_VISIBLE_SECONDS_MAX:.0f} s"
                )
            time.sleep(_VISIBLE_PAUSE_SECONDS)

    def _is_visible(self, connection: Connection[Any], low: SourcePosition) -> bool:
        if not self._mariadb:
            return bool(int(_texts(connection, f"SELECT GTID_SUBSET('{low.gtid}', @@GLOBAL.gtid_executed)")[0][0]))
        rows(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        found = {str(name).lower(): value for name, value in _texts(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
        file, pos = str(found["binlog_snapshot_file"]), int(found["binlog_snapshot_position"])
        return has_passed(SourcePosition(file, pos, source=self._identity), low)

    def _select(self, connection: Connection[Any], sql: str, table: TableSchema) -> Result:
        name = f"{table.schema}.{table.table}"
        denied = f"GRANT SELECT ON {name} TO the user; or leave it out of the load (source.snapshot.tables.exclude)"
        with translate_errors(f"cannot load {name}", denied=denied):
            try:
                return select(connection, sql, CHUNK_BYTES_MAX)
            except pymysql.err.MySQLError as error:
                if error.args and error.args[0] in _MOVED:
                    raise TableMoved(f"{name}: {error.args[1]}") from error
                raise


def _texts(connection: Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query, whose texts come as bytes where the session asks for no character set."""
    with translate_errors(sql.split(None, 1)[0]), connection.cursor() as cursor:
        cursor.execute(sql)
        return [
            tuple(value.decode() if isinstance(value, bytes) else value for value in row) for row in cursor.fetchall()
        ]
