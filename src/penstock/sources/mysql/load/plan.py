"""Which tables are loaded, by which key, and what is refused before anything begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pymysql.connections import Connection

from penstock.errors import NotSupported, Unavailable
from penstock.schema.model import TableSchema
from penstock.sources.load import Name, TableLoad
from penstock.sources.mysql.connection import rows
from penstock.sources.mysql.load.columns import column_form
from penstock.sources.mysql.load.condition import check_condition, readable_rows
from penstock.sources.mysql.load.readiness import load_settings
from penstock.sources.settings import SnapshotSettings
from penstock.sources.source import SourceError, cannot_load

Loads = dict[Name, TableLoad]


def plan_initial_loads(
    connection: Connection[Any], versions: Iterable[TableSchema], snapshot: SnapshotSettings
) -> Loads:
    """The load of each of the tables that `snapshot.tables` takes. Raises `SourceError` where the server, or a table, cannot
    be loaded: a load that leaves rows out without a word would be worse."""
    tables = snapshot.tables
    wanted = (version for version in versions if version.table and tables.matches(version.schema, version.table))
    loads, refused = examine(connection, wanted, snapshot)
    if refused:
        raise cannot_load(refused)
    return loads


def examine(
    connection: Connection[Any], versions: Iterable[TableSchema], snapshot: SnapshotSettings
) -> tuple[Loads, dict[Name, str]]:
    """The loads of these tables, and why those that are not among them cannot be loaded. Raises `SourceError` where no
    table of the server can be."""
    _require_settings(connection, snapshot)
    versions = list(versions)
    keys: dict[Name, list[str]] = {}
    estimates: dict[Name, int] = {}
    # One by one: asked for all, a server opens each table that it has, also those of its own schemas.
    for wanted in {version.schema: None for version in versions}:
        for schema, table, column in rows(
            connection,
            "SELECT table_schema, table_name, column_name FROM information_schema.statistics WHERE index_name = 'PRIMARY' "
            "AND table_schema = %s ORDER BY table_schema, table_name, seq_in_index",
            (wanted,),
        ):
            if schema == wanted:  # and not one whose name differs in its case alone
                keys.setdefault((str(schema), str(table)), []).append(str(column))
        for schema, table, count in rows(
            connection,
            "SELECT table_schema, table_name, table_rows FROM information_schema.tables WHERE table_schema = %s",
            (wanted,),
        ):
            if schema == wanted:
                estimates[str(schema), str(table)] = int(count or 0)
    loads: Loads = {}
    refused: dict[Name, str] = {}
    for version in versions:
        if version.is_sequence:
            continue
        name = (version.schema, version.table)
        reason = _reason_against(version, keys.get(name, []))
        if reason:
            refused[name] = reason
        else:
            loads[name] = TableLoad(tuple(keys[name]), estimate=estimates.get(name, 0))
    return loads, refused


def examine_readable(
    connection: Connection[Any], versions: Iterable[TableSchema], snapshot: SnapshotSettings, where: str
) -> tuple[Loads, dict[Name, str]]:
    """As `examine`, for a load beside the stream: a table that the user may not read is refused, too. Only rows that meet
    `where` are loaded. Raises `BadInput` where that is no condition for one of the tables."""
    if where:
        check_condition(where)
    loads, refused = examine(connection, versions, snapshot)
    rows(connection, "SET SESSION sql_mode = ''")  # as for the readers: it decides what a condition means
    for name, load in list(loads.items()):
        try:
            estimate = readable_rows(connection, *name, where)
        except Unavailable:
            raise
        except SourceError as error:
            refused[name] = error.message
            del loads[name]
        else:
            loads[name] = replace(load, where=where, estimate=estimate if where else load.estimate)
    return loads, refused


def _reason_against(version: TableSchema, key: list[str]) -> str:
    if not version.columns:
        return version.reason or "its definition cannot be read"
    if not key:
        return "it has no primary key"
    try:
        for column in version.columns:
            column_form(column)
    except NotSupported as error:
        return error.message
    return ""


def _require_settings(connection: Connection[Any], snapshot: SnapshotSettings) -> None:
    for check in load_settings(connection, snapshot):
        if not check.passed:
            raise SourceError(check.message, hint=check.sql)
