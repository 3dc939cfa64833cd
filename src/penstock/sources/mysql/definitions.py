"""The tables and databases of a server as they are now: what a new log starts with."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Any

from pymysql.connections import Connection

from penstock.errors import NotSupported
from penstock.schema.catalog import SYSTEM_SCHEMAS
from penstock.schema.ddl import table_from_show_create
from penstock.schema.model import DdlType, TableSchema
from penstock.schema.quoting import quoted_name
from penstock.sources.mysql.connection import connect, rows
from penstock.sources.mysql.family import family_of
from penstock.sources.mysql.tables import TABLE_TYPES
from penstock.sources.position import SourcePosition
from penstock.sources.settings import ServerSettings, Tables
from penstock.sources.source import SourceError

_COUNTER = re.compile(r"^(\) .*?) AUTO_INCREMENT=\d+", re.MULTILINE)  # of the last line, where the options stand

Definitions = dict[tuple[str, str], str]
"""(schema, table) → its CREATE TABLE; (schema, "") → the database's default charset."""


def read_definitions(connection: Connection[Any], tables: Tables) -> Definitions:
    """What the server says of every wanted table, and of every database that may hold one."""
    databases: Definitions = {
        (str(schema), ""): str(charset)
        for schema, charset in rows(
            connection, "SELECT schema_name, default_character_set_name FROM information_schema.schemata"
        )
        if str(schema).lower() not in SYSTEM_SCHEMAS and tables.matches_database(str(schema))
    }
    names = rows(
        connection,
        f"SELECT table_schema, table_name FROM information_schema.tables WHERE table_type IN ({TABLE_TYPES}, 'SEQUENCE') "
        "ORDER BY 1, 2",
    )
    wanted = [name for name in names if name[0].lower() not in SYSTEM_SCHEMAS and tables.matches(*name)]
    return databases | tables_as_they_are(connection, wanted)


def tables_as_they_are(connection: Connection[Any], names: Iterable[tuple[Any, ...]]) -> Definitions:
    """The CREATE TABLE of each of these (schema, table); those that are gone are left out."""
    found: Definitions = {}
    for schema, table in names:
        # A table that was dropped since the list was read: the two readings differ, and all is read again.
        with contextlib.suppress(SourceError):
            text = str(rows(connection, f"SHOW CREATE TABLE {quoted_name(schema, table)}")[0][1])
            found[schema, table] = _COUNTER.sub(r"\1", text)  # each insert moves it, and that changes no table
    return found


def versions_of(definitions: Definitions, version: int, *, mariadb: bool) -> tuple[TableSchema, ...]:
    """The versions that a new log starts with. A table that cannot be read is parked from its first row on."""
    made: list[TableSchema] = []
    for (schema, table), text in definitions.items():
        if not table:
            made.append(TableSchema(schema, "", version, (), charset=text))
            continue
        try:
            made.append(table_from_show_create(text, schema, version, mariadb=mariadb))
        except NotSupported as error:
            made.append(TableSchema(schema, table, version, (), text, DdlType.UNKNOWN, reason=str(error)))
    return tuple(made)


def definition_now(settings: ServerSettings, schema: str, table: str) -> tuple[str | None, SourcePosition]:
    """The table's CREATE TABLE, None if there is no such table; and a position: every statement before the answer is before
    it in the binlog."""
    with contextlib.closing(connect(settings)) as connection:
        family = family_of(connection)
        there = rows(
            connection,
            "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s AND table_type <> 'VIEW'",
            (schema, table),
        )
        text = str(rows(connection, f"SHOW CREATE TABLE {quoted_name(schema, table)}")[0][1]) if there else None
        return text, family.now(connection, family.identity(connection))
