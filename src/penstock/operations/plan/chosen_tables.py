"""The tables that a source has now, of those that the configuration takes: names, estimates of rows and bytes, and keys.

Asks the server's own catalogue, nothing of the tables themselves: a plan costs the server as little as a check does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.operations.config.model import Config
from penstock.sources.settings import DemoSettings, ServerSettings


@dataclass(frozen=True, slots=True)
class SourceTable:
    schema: str
    table: str
    rows: int | None = None
    bytes: int | None = None
    primary_key: bool | None = None

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class SourceTables:
    """`all` are the tables of the source whether or not they are chosen; None where it does not say which it has."""

    source: str
    all: tuple[SourceTable, ...] | None


def look_at_tables(config: Config) -> SourceTables:
    """Raises `SourceError` or `Unavailable` where the server cannot be asked."""
    source = config.source
    if isinstance(source, ServerSettings):
        return _of_server(source)
    if isinstance(source, DemoSettings):
        from penstock.sources.demo import shop

        made = (shop.CUSTOMERS, shop.PRODUCTS, shop.ORDERS, shop.ORDER_ITEMS)
        return SourceTables("demo shop", tuple(SourceTable(shop.SCHEMA, one.name, primary_key=True) for one in made))
    return SourceTables(f"binlog files at {source.path}", None)


def unreadable_tables(settings: ServerSettings, tables: Iterable[SourceTable]) -> dict[str, str]:
    """Why the definitions of some of these tables cannot be read, by the table's name."""
    from penstock.sources.mysql.connection import connect
    from penstock.sources.mysql.load.readiness import unreadable

    with contextlib.closing(connect(settings)) as connection:
        found = unreadable(connection, [(one.schema, one.table) for one in tables])
    return {".".join(name): reason for name, reason in found.items()}


def _of_server(settings: ServerSettings) -> SourceTables:
    from penstock.schema.catalog import SYSTEM_SCHEMAS
    from penstock.sources.mysql.connection import connect, rows, where
    from penstock.sources.mysql.family import server_version
    from penstock.sources.mysql.tables import TABLE_TYPES

    with contextlib.closing(connect(settings)) as connection:
        version = server_version(connection)
        name = version if "mariadb" in version.lower() else f"MySQL {version}"
        keyed = {
            (str(schema), str(table))
            for schema, table in rows(
                connection,
                "SELECT DISTINCT table_schema, table_name FROM information_schema.statistics WHERE index_name = 'PRIMARY'",
            )
        }
        found = [
            SourceTable(str(schema), str(table), int(count or 0), int(size or 0), (schema, table) in keyed)
            for schema, table, count, size in rows(
                connection,
                "SELECT table_schema, table_name, table_rows, data_length FROM information_schema.tables "
                f"WHERE table_type IN ({TABLE_TYPES}) ORDER BY 1, 2",
            )
            if str(schema).lower() not in SYSTEM_SCHEMAS
        ]
    return SourceTables(f"{name} at {where(settings)}", tuple(found))
