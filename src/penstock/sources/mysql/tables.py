"""Which tables a server has, of those that are wanted."""

from __future__ import annotations

from typing import Any

from pymysql.connections import Connection

from penstock.schema.catalog import SYSTEM_SCHEMAS
from penstock.sources.mysql.connection import rows
from penstock.sources.settings import Tables

TABLE_TYPES = "'BASE TABLE', 'SYSTEM VERSIONED'"
"""What information_schema.tables calls tables with rows of their own: the second is MariaDB's, for tables with a history."""


def wanted_tables(connection: Connection[Any], tables: Tables) -> list[tuple[str, str]]:
    """(schema, table) of each, sorted. Never one of the server's own schemas."""
    found = rows(
        connection,
        f"SELECT table_schema, table_name FROM information_schema.tables WHERE table_type IN ({TABLE_TYPES}) ORDER BY 1, 2",
    )
    return [
        (schema, table)
        for schema, table in found
        if schema.lower() not in SYSTEM_SCHEMAS and tables.matches(schema, table)
    ]
