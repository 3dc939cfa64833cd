"""One chunk after the other of a table, over a connection of its own.

A chunk must show everything that the log has already (*low*): what it shows less would come twice, or be lost. A server
writes a transaction to its binlog before it shows it to others, so this is asked of the server and never guessed.

- MariaDB: START TRANSACTION WITH CONSISTENT SNAPSHOT, whose place in the binlog is `binlog_snapshot_position`: exactly
  what is before it is shown.
- MySQL: a transaction is in `gtid_executed` only once others see it. The chunk is read when that has all of low's.
- MySQL without GTIDs, where the user allows it: a transaction keeps its rows locked until others see them. A locking read
  waits for each row that is in the binlog and cannot be seen yet, and gives its newest image.

Where the binlog ends after the SELECT (*high*) is beyond everything that it showed.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from typing import Any

import pymysql
from pymysql.connections import Connection

from penstock.binlog.rows.arrays import BadValue
from penstock.errors import BadInput, Unavailable
from penstock.schema.model import TableSchema
from penstock.sources.load import CHUNK_BYTES_MAX, KeyRange, LoadedRows, TableLoad, TableMoved, has_passed
from penstock.sources.mysql.connection import QUERY_SECONDS_MAX, connect, rows, translate_errors, waiting_up_to
from penstock.sources.mysql.family import family_of
from penstock.sources.mysql.load.columns import column_form
from penstock.sources.mysql.load.keys import LOCKING, chunk_query, key_ordinals
from penstock.sources.mysql.load.ranges import find_ranges
from penstock.sources.mysql.load.result import Result, Space, select
from penstock.sources.mysql.mariadb import MARIADB
from penstock.sources.mysql.mysql import gtid_mode
from penstock.sources.position import SourcePosition
from penstock.sources.settings import ServerSettings
from penstock.sources.source import SourceError

_VISIBLE_SECONDS_MAX = 30.0
_VISIBLE_PAUSE_SECONDS = 0.005
_MOVED = frozenset({1054, 1146, 1176, 1049, 1356})  # no such column, table, index, database
# The table was made anew after the snapshot. By OPTIMIZE TABLE, or an ALTER that only rebuilds it, it is as the log has it
# all the same; what else it may be, the next SELECT shows.
_REBUILT = 1412
_CONDITION_SECONDS_MAX = 3600.0  # until the first rows come: without an index the server may look at all there are
_SESSION = (
    "SET SESSION max_sort_length = 4096",  # longer than any key: a key of prefixes is sorted, and not by its first part
    "SET time_zone = '+00:00', sql_mode = '', character_set_results = NULL",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_LOCKING_SESSION = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",  # locks rows, and not what lies between them
    "SET SESSION innodb_lock_wait_timeout = 10",
)
_DEADLOCK = 1213
_NO_LIMIT = {
    True: "SET SESSION max_statement_time = 0",
    False: "SET SESSION max_execution_time = 0",
}  # of MariaDB, MySQL


class ServerTableReader:
    """Connects with the first chunk, and again after an error."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._connection: Connection[Any] | None = None
        self._space = Space()
        self._mariadb = False
        self._locks = False  # chunks lock what they read
        self._identity = ""

    def split(self, table: TableSchema, load: TableLoad, parts: int) -> tuple[KeyRange, ...]:
        forms = [column_form(column) for column in table.columns]
        try:
            connection = self._connected(None)
            return find_ranges(connection, table, forms, load, _order_of(connection, table, load.key), parts)
        except BaseException:
            self.close()
            raise

    def read(
        self, table: TableSchema, load: TableLoad, part: KeyRange, low: SourcePosition, rows_max: int
    ) -> LoadedRows:
        key = key_ordinals(table, load.key)
        forms = [column_form(column) for column in table.columns]
        sql = chunk_query(table, forms, load, part, rows_max)
        try:
            connection = self._connected(low)
            self._wait_until_visible(connection, low)
            order = _order_of(connection, table, load.key)
            if self._locks:
                sql += LOCKING
            result = self._select(connection, sql, table, patient=bool(load.where))
            if result.whole:
                rows(connection, "COMMIT")
            else:  # the rest of the rows is on its way, and nobody wants it
                self.close()
            high = self.now()
            if _order_of(self._connected(low), table, load.key) != order:
                raise Unavailable(f"the key of {table.name} was changed while a chunk was read")
        except BaseException:
            self.close()
            raise
        last = result.count - 1
        after = tuple(forms[i].literal(result.columns[i].text(last)) for i in key) if result.count else part.after
        columns = []
        for column, form, values in zip(table.columns, forms, result.columns, strict=True):
            try:
                columns.append(form.read(values))
            except BadValue as error:
                raise BadInput(
                    f"{table.name}, column {column.name}: {error}",
                    hint="leave the table out of the load (source.snapshot.tables.exclude), and tell us",
                ) from error
        self._space.trim()
        return LoadedRows(columns, after, result.whole and result.count < rows_max, high, result.bytes, order)

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
            with contextlib.suppress(Exception):  # wakes a thread that waits for it, which closing alone does not
                private._sock.shutdown(socket.SHUT_RDWR)
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
                self._locks = not self._mariadb and gtid_mode(connection) != "ON"
                if self._locks:
                    for statement in _LOCKING_SESSION:
                        rows(connection, statement)
                with contextlib.suppress(SourceError):  # of a server that is too old to know it
                    rows(connection, _NO_LIMIT[self._mariadb])
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
        if self._locks:
            return True
        if not self._mariadb:
            return bool(int(_texts(connection, f"SELECT GTID_SUBSET('{low.gtid}', @@GLOBAL.gtid_executed)")[0][0]))
        rows(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        found = {str(name).lower(): value for name, value in _texts(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
        file, pos = str(found["binlog_snapshot_file"]), int(found["binlog_snapshot_position"])
        return has_passed(SourcePosition(file, pos, source=self._identity), low)

    def _select(self, connection: Connection[Any], sql: str, table: TableSchema, *, patient: bool) -> Result:
        name = f"{table.schema}.{table.table}"
        denied = f"GRANT SELECT ON {name} TO the user; or leave it out of the load (source.snapshot.tables.exclude)"
        with translate_errors(f"cannot load {name}", denied=denied):
            try:
                with waiting_up_to(connection, _CONDITION_SECONDS_MAX if patient else QUERY_SECONDS_MAX):
                    return select(connection, sql, CHUNK_BYTES_MAX, self._space)
            except pymysql.err.MySQLError as error:
                if error.args and error.args[0] in _MOVED:
                    raise TableMoved(f"{name}: {error.args[1]}") from error
                if error.args and error.args[0] in (_DEADLOCK, _REBUILT):
                    raise Unavailable(f"{name}: {error.args[1]}") from error
                raise


def _order_of(connection: Connection[Any], table: TableSchema, key: Sequence[str]) -> tuple[str, ...]:
    """What the order of the key's values depends on: the log's schemas do not have collations."""
    found = {
        str(name).lower(): f"{kind} {collation or ''}".strip()
        for name, kind, collation in _texts(
            connection,
            "SELECT column_name, column_type, collation_name FROM information_schema.columns WHERE "
            f"table_schema = {_literal(table.schema)} AND table_name = {_literal(table.table)}",
        )
    }
    return tuple(found.get(name.lower(), "") for name in key)


def _literal(text: str) -> str:
    return f"_utf8mb4 X'{text.encode().hex()}'"


def _texts(connection: Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query, whose texts come as bytes where the session asks for no character set."""
    with translate_errors(sql.split(None, 1)[0]), connection.cursor() as cursor:
        cursor.execute(sql)
        return [
            tuple(value.decode() if isinstance(value, bytes) else value for value in row) for row in cursor.fetchall()
        ]
