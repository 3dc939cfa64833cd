"""What an initial load needs of a server, for `penstock check`: without the kernels that a load itself needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pymysql.connections import Connection

from penstock.schema.quoting import quoted_name
from penstock.sources.load import Name
from penstock.sources.mysql.checks import Check
from penstock.sources.mysql.connection import rows
from penstock.sources.mysql.definitions import tables_as_they_are, versions_of
from penstock.sources.mysql.family import server_version
from penstock.sources.mysql.tables import wanted_tables
from penstock.sources.settings import ServerSettings, SnapshotSettings

_NAMED_MAX = 5
_ROW_IMAGE = "FULL"


def load_settings(connection: Connection[Any], snapshot: SnapshotSettings) -> list[Check]:
    """The server's settings without which no row is loaded, passed or not."""
    found = {
        str(name).lower(): str(value).upper()
        for name, value in rows(
            connection, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_row_image', 'gtid_mode')"
        )
    }
    image = found.get("binlog_row_image", _ROW_IMAGE)
    checks = [
        Check(
            "load: binlog_row_image",
            image == _ROW_IMAGE,
            f"loading rows needs binlog_row_image = FULL, and it is {image}: a row that changes while it is loaded would "
            "lack columns"
            if image != _ROW_IMAGE
            else "rows can be loaded: binlog_row_image is FULL",
            "SET GLOBAL binlog_row_image = 'FULL';",
        )
    ]
    mode = found.get("gtid_mode", "OFF")
    if "mariadb" not in server_version(connection).lower() and mode != "ON":
        checks.append(
            Check(
                "load: gtid_mode",
                snapshot.row_locks,
                f"gtid_mode is {mode}: each chunk locks its rows against writers while it is read"
                if snapshot.row_locks
                else f"loading rows from MySQL needs gtid_mode = ON, and it is {mode}: without GTIDs it does not say which "
                "transactions others can see",
                "turn GTIDs on (gtid_mode = ON, enforce_gtid_consistency = ON); or source.snapshot.row_locks: true, with "
                "which each chunk locks its rows against writers while it is read; or use source.start: now",
            )
        )
    return checks


def load_checks(connection: Connection[Any], settings: ServerSettings, *, begun: bool) -> list[Check]:
    """What `start: snapshot` needs. `begun`: the log is there, and only tables that are chosen later are loaded by a start."""
    if settings.start != "snapshot":
        return []
    keyed = {
        (str(schema), str(table))
        for schema, table in rows(
            connection,
            "SELECT DISTINCT table_schema, table_name FROM information_schema.statistics WHERE index_name = 'PRIMARY'",
        )
    }
    chosen = [name for name in wanted_tables(connection, settings.tables) if settings.snapshot.tables.matches(*name)]
    bare = [name for name in chosen if name not in keyed]
    found = load_settings(connection, settings.snapshot)
    refused = [
        Check(
            "source.snapshot", False, f"cannot load {'.'.join(name)}: {reason}", _left_out([name]), required=not begun
        )
        for name, reason in list(unreadable(connection, chosen).items())[:_NAMED_MAX]
    ]
    if bare:
        named = ", ".join(".".join(name) for name in bare[:_NAMED_MAX])
        more = f", and {len(bare) - _NAMED_MAX:,} more" if len(bare) > _NAMED_MAX else ""
        have = "it has no primary key" if len(bare) == 1 else "they have no primary key"
        sql = f"ALTER TABLE {quoted_name(*bare[0])} ADD PRIMARY KEY (…); or {_left_out(bare)}"
        message = f"cannot load {named}{more}: {have}"
        refused.append(Check("source.snapshot", False, message, sql, required=not begun))
    return [*found, *(refused or [Check("source.snapshot", True, "every table that is loaded has a primary key")])]


def unreadable(connection: Connection[Any], names: Iterable[Name]) -> dict[Name, str]:
    """Why the definitions of some of these tables cannot be read: such a table is parked from its first row on, and not
    loaded."""
    mariadb = "mariadb" in server_version(connection).lower()
    made = versions_of(tables_as_they_are(connection, names), 0, mariadb=mariadb)
    return {(one.schema, one.table): one.reason for one in made if not (one.columns or one.is_sequence)}


def _left_out(names: Sequence[Name]) -> str:
    exclude = ", ".join(f'"{".".join(name)}"' for name in names[:_NAMED_MAX])
    return f"source.snapshot.tables: {{exclude: [{exclude}]}}: followed from the start on, and not loaded"
