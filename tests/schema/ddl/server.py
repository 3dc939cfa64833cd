"""A real server as the judge: runs DDL, follows its binlog with our parser, and compares every table with its own word."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

import pymysql

from penstock.binlog.bodies import FormatDescription, parse_format_description, parse_query
from penstock.binlog.events import split_events
from penstock.binlog.types import EventType
from penstock.schema.catalog import Catalog
from penstock.schema.ddl import Statement, is_ddl, table_from_show_create
from penstock.schema.ddl.tokens import tokens_of
from penstock.schema.model import INTEGER_TYPES, TableSchema
from penstock.schema.quoting import quoted_name
from tests.schema.mirror import forward
from tools.components.database import DatabaseServer

_WIDTH = re.compile(rf"\b({'|'.join(sorted(INTEGER_TYPES))}|year)\(\d+\)")

# What is not forwarded of a table: docs/formats/manifest.md. Its collation may be that of its database.
_NOT_FORWARDED = re.compile(r" (AUTO_INCREMENT|ENGINE|COMMENT|ROW_FORMAT|MAX_ROWS|COLLATE)=('(?:[^']|'')*'|\w+)")
_CONVERTED = re.compile("binary|time|date|year|bit|float|double|decimal|inet|uuid")


class Judge:
    """Two databases of one test on a shared server. `follow` runs statements; afterwards `catalog` must equal the server."""

    def __init__(self, server: DatabaseServer, prefix: str, *, lower_case_table_names: int = 0) -> None:
        self.databases = (f"{prefix}_a", f"{prefix}_b")
        self.readers = {name: f"r_{name}" for name in self.databases}  # those of a reader of a sink
        self._server = server
        self._mariadb = server.kind == "mariadb"
        self._connection = server.connect()
        self._observer = server.connect()  # apart, because the session under test changes its own settings
        self.catalog = Catalog(lower_case_table_names=lower_case_table_names)
        self._fde: FormatDescription | None = None
        self._drop_databases()
        self._at = self._end()
        for database in self.databases:
            self._execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        self._execute(f"USE {self.databases[0]}")
        self.read_binlog()

    def close(self) -> None:
        self._drop_databases()
        self._connection.close()
        self._observer.close()

    def _drop_databases(self) -> None:
        for database in (*self.databases, *self.readers.values()):
            self._execute(f"DROP DATABASE IF EXISTS {database}")

    def try_to(self, sql: str) -> bool:
        """Runs one statement and compares; False if the server refused it."""
        refused = not self._is_taken(sql)
        self.read_binlog(refused=refused)
        self.compare(sql)
        return not refused

    def try_all(self, statements: Iterable[str]) -> list[str]:
        """Runs the statements; after each, the tables that it changed in our eyes are compared, at the end all of them. The
        statements that the server refused."""
        refused: list[str] = []
        for sql in statements:
            before = set(self.catalog.tables())
            is_taken = self._is_taken(sql)
            refused += [] if is_taken else [sql]
            self.read_binlog(refused=not is_taken)
            self.compare(sql, before)
        self.compare("all")
        return refused

    def follow(self, *statements: str) -> None:
        for sql in statements:
            self._execute(sql)
            self.read_binlog()
            self.compare(sql)

    def read_binlog(self, *, refused: bool = False) -> None:
        """Applies what the server logged since the last time, for a statement that it may have `refused`; nothing of it may
        be parked."""
        file, start = self._at
        self._at = self._end()
        assert self._at[0] == file, "the binlog rotated under the test"
        path = self._server.binlog_directory / file
        with path.open("rb") as binlog:
            if self._fde is None:
                head = binlog.read(4096)
                first = split_events(head[4 : 4 + int.from_bytes(head[13:17], "little")])
                self._fde = parse_format_description(head[4 : 4 + int(first.size[0])])
            binlog.seek(start)
            data = binlog.read(self._at[1] - start)
        events = split_events(data)
        for offset, size, kind in zip(events.offset.tolist(), events.size.tolist(), events.type.tolist(), strict=True):
            if kind != EventType.QUERY:
                continue
            query = parse_query(data[offset : offset + size], self._fde)
            if is_ddl(query.sql) and query.schema not in self.readers.values():
                self._forward(Statement.of(query), offset + start, refused=refused)

    def _forward(self, statement: Statement, version: int, *, refused: bool) -> None:
        """What the sink is given for the statement, run in a strict session of its own on databases of its own."""
        if any(f"`{name}`" in statement.sql for name in self.readers.values()):
            return  # the reader's own
        for made in forward(statement, self.catalog, version):
            assert not made.parked, (statement.sql, made.reason)
            sql = made.query
            for name, reader in self.readers.items():
                sql = sql.replace(f"`{name}`", f"`{reader}`")
            if sql != made.query:  # else it is of a database that statements made beside those of the test
                self._run(sql, statement, refused=refused)

    def _run(self, sql: str, statement: Statement, *, refused: bool) -> None:
        try:
            with self._observer.cursor() as cursor:
                cursor.execute(sql)
        except pymysql.err.MySQLError as error:
            # A MySQL 8.0.12 logs a foreign key that it then refuses.
            assert refused, f"{error}: {sql}\nfor {statement.sql}"

    def compare(self, after: str, leave_out: Container[TableSchema] = ()) -> None:
        """Every table but some: names, order, types, nullability, key, charsets, defaults; and the databases' charsets."""
        tables = self._rows(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND "
            "table_schema IN (%s, %s)",
            *self.databases,
        )
        own = {(t.schema, t.table): t for t in self.catalog.tables() if t.schema in self.databases and t.columns}
        assert sorted(own) == sorted((str(schema), str(table)) for schema, table in tables), after
        for schema, charset in self._rows(
            "SELECT schema_name, default_character_set_name FROM information_schema.schemata WHERE schema_name IN (%s, %s)",
            *self.databases,
        ):
            assert self.catalog.database_charset(schema) == _charset(charset), after
        for name, table in own.items():
            if table not in leave_out:
                self._compare_table(table, *name, after)

    def _compare_table(self, table: TableSchema, schema: str, name: str, after: str) -> None:
        theirs = described(self._observer, schema, name, mariadb=self._mariadb)[name]
        different = _different(facts(table), theirs)
        assert not different, f"{different}\nafter {after}\n{table.query}"
        shown = str(self._rows(f"SHOW CREATE TABLE {quoted_name(schema, name)}")[0][1])
        again = table_from_show_create(shown, schema, 1, mariadb=self._mariadb)
        different = _different(facts(again), theirs)
        assert not different, f"{different}\n{shown}"
        assert again.charset == table.charset, f"after {after}\n{shown}"
        copy = described(self._observer, self.readers[schema], name, mariadb=self._mariadb)[name]
        assert copy == theirs, f"a reader has another table after {after}\n{shown}"
        other = str(self._rows(f"SHOW CREATE TABLE {quoted_name(self.readers[schema], name)}")[0][1])
        for database, reader in self.readers.items():
            other = other.replace(f"`{reader}`", f"`{database}`")
        assert _forwarded(other) == _forwarded(shown), f"a reader has another table after {after}"

    def _is_taken(self, sql: str) -> bool:
        try:
            self._execute(sql)
        except pymysql.err.MySQLError:
            return False
        return True

    def _execute(self, sql: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)

    def _rows(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self._observer.cursor() as cursor:
            cursor.execute(sql, arguments)
            return list(cursor.fetchall())

    def _end(self) -> tuple[str, int]:
        file, position = self._rows("SHOW MASTER STATUS")[0][:2]
        return str(file), int(position)


_ONE_TABLE = "table_schema = %s AND table_name = %s"
Fact = list[Any]  # name, type, nullable, in the primary key, charset, default


def described(connection: Any, schema: str, table: str | None = None, *, mariadb: bool = True) -> dict[str, list[Fact]]:
    """The tables of a database, or one of them, in the server's words."""
    which, arguments = ("table_schema = %s", [schema]) if table is None else (_ONE_TABLE, [schema, table])
    with connection.cursor() as cursor:
        # Not column_key: it calls a unique key of columns that are not null primary too.
        cursor.execute(
            f"SELECT table_name, column_name FROM information_schema.statistics WHERE {which} AND index_name = 'PRIMARY'",
            arguments,
        )
        keys = set(cursor.fetchall())
        cursor.execute(
            f"SELECT table_name FROM information_schema.tables WHERE {which} AND table_type = 'BASE TABLE'", arguments
        )
        found: dict[str, list[Fact]] = {str(row[0]): [] for row in cursor.fetchall()}
        cursor.execute(
            "SELECT table_name, column_name, column_type, is_nullable, character_set_name, column_default FROM "
            f"information_schema.columns WHERE {which} ORDER BY table_name, ordinal_position",
            arguments,
        )
        for name, column, kind, nullable, charset, default in cursor.fetchall():
            if name in found:
                key = (name, column) in keys
                shown = _default(default) if mariadb or default is None else _function(default)
                of_text = "utf8mb4" if kind == "json" else _charset(charset)
                found[name].append([column, _type(kind), nullable == "YES", key, of_text, shown])
    return found


def facts(table: TableSchema) -> list[Fact]:
    """The same of a schema of ours."""
    return [
        [
            c.name,
            _type(c.mysql_type),
            c.nullable,
            c.primary_key,
            c.charset,
            None if c.default is None else _function(c.default),
        ]
        for c in table.columns
    ]


def _forwarded(shown: str) -> list[str]:
    """The lines of SHOW CREATE TABLE: columns, keys, constraints, options, partitions."""
    return _NOT_FORWARDED.sub("", shown).splitlines()


def _type(text: str) -> str:
    """Display widths are printed by some servers only."""
    return _WIDTH.sub(r"\1", text.partition(" /*M!")[0]).replace("geomcollection", "geometrycollection")


def _different(ours: list[Fact], theirs: list[Fact]) -> list[tuple[Fact | None, Fact | None]]:
    pairs = itertools.zip_longest(ours, theirs)
    return [(our, their) for our, their in pairs if our is None or their is None or _printed(our) != _printed(their)]


def _printed(fact: Fact) -> Fact:
    """A server prints the default of some types as the value that it stores: padded, as a time, with all digits. Of these
    only that there is one is compared, and functions."""
    *rest, default = fact
    stored = default is not None and not default.endswith("()") and _CONVERTED.match(fact[1]) is not None
    return [*rest, "a value" if stored else default]


def _charset(name: str | None) -> str | None:
    """Servers before MySQL 8.0.30 call it by its old name."""
    return "utf8mb3" if name == "utf8" else name


def _default(text: str | None) -> str | None:
    """As information_schema of MariaDB prints it: strings in quotes, functions in lower case."""
    if text is None or text == "NULL":
        return None
    if text.startswith("'"):
        return _number(tokens_of(text)[0].text)
    return _function(text)


def _function(text: str) -> str:
    """Functions and expressions are printed anew by the server: only their first name is compared."""
    lower = text.lower()
    if lower in ("now()", "current_timestamp", "localtime", "localtimestamp"):
        return "current_timestamp()"
    if "(" in lower:
        return lower.strip("(").partition("(")[0].replace("now", "current_timestamp") + "()"
    return _number(text)


def _number(text: str) -> str:
    if re.fullmatch("b'[01]+'", text):
        return str(int(text[2:-1], 2))
    try:
        return str(Decimal(text).normalize())
    except InvalidOperation:
        return text
