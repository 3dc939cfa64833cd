"""Which tables are loaded, by which key, and what is refused before anything begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pymysql.connections import Connection

from penstock.errors import NotSupported
from penstock.schema.model import TableSchema
from penstock.sources.load import TableLoad
from penstock.sources.mysql.connection import rows
from penstock.sources.mysql.family import server_version
from penstock.sources.mysql.load.columns import column_form
from penstock.sources.settings import Tables
from penstock.sources.source import SourceError

_NAMED_MAX = 5

Loads = dict[tuple[str, str], TableLoad]


def plan_loads(connection: Connection[Any], versions: Iterable[TableSchema], tables: Tables) -> Loads:
    """The load of each of the tables that `tables` takes. Raises `SourceError` where the server, or a table, cannot be
    loaded: a load that leaves rows out without a word would be worse."""
    _require_settings(connection)
    keys: dict[tuple[str, str], list[str]] = {}
    for schema, table, column in rows(
        connection,
        "SELECT table_schema, table_name, column_name FROM information_schema.statistics WHERE index_name = 'PRIMARY' "
        "ORDER BY table_schema, table_name, seq_in_index",
    ):
        keys.setdefault((str(schema), str(table)), []).append(str(column))
    estimates = {
        (str(schema), str(table)): int(count or 0)
        for schema, table, count in rows(
            connection, "SELECT table_schema, table_name, table_rows FROM information_schema.tables"
        )
    }
    loads: Loads = {}
    refused: list[str] = []
    for version in versions:
        if not version.table or version.is_sequence or not tables.matches(version.schema, version.table):
            continue
        name = (version.schema, version.table)
        reason = _reason_against(version, keys.get(name, []))
        if reason:
            refused.append(f"{version.name} ({reason})")
        else:
            loads[name] = TableLoad(tuple(keys[name]), estimate=estimates.get(name, 0))
    if refused:
        more = f", and {len(refused) - _NAMED_MAX} more" if len(refused) > _NAMED_MAX else ""
        raise SourceError(
            f"cannot load {', '.join(refused[:_NAMED_MAX])}{more}",
            hint="give the table a primary key, or leave it out of the load alone (source.snapshot.tables.exclude: its changes "
            "are captured from now on) or altogether (source.tables.exclude)",
        )
    return loads


def _reason_against(version: TableSchema, key: list[str]) -> str:
    if not version.columns:
        return version.reason or "its definition cannot be read"
    if not key:
        return "it has no primary key"
    if {name.lower() for name in key} != {version.columns[i].name.lower() for i in version.primary_key}:
        return "its primary key was just changed"
    try:
        for column in version.columns:
            column_form(column)
    except NotSupported as error:
        return error.message
    return ""


def _require_settings(connection: Connection[Any]) -> None:
    found = {
        str(name).lower(): str(value).upper()
        for name, value in rows(
            connection, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_row_image', 'gtid_mode')"
        )
    }
    if found.get("binlog_row_image", "FULL") != "FULL":
        raise SourceError(
            f"source.start: snapshot needs binlog_row_image = FULL, and it is {found['binlog_row_image']}: a row that changes "
            "while it is loaded would lack columns",
            hint="run: SET GLOBAL binlog_row_image = 'FULL';",
        )
    if "mariadb" not in server_version(connection).lower() and found.get("gtid_mode", "OFF") != "ON":
        raise SourceError(
            f"source.start: snapshot needs gtid_mode = ON, and it is {found.get('gtid_mode', 'OFF')}: without GTIDs MySQL does "
            "not say which transactions others can see",
            hint="turn GTIDs on (gtid_mode = ON, enforce_gtid_consistency = ON), or use source.start: now",
        )
