"""What SHOW CREATE TABLE prints → a schema: for the tables of a start, and where a statement was not understood."""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import NotSupported
from penstock.schema.catalog import Catalog
from penstock.schema.ddl.session import Statement
from penstock.schema.ddl.statement import apply_ddl
from penstock.schema.model import DdlType, TableSchema


def table_from_show_create(text: str, schema: str, version: int, *, mariadb: bool = True) -> TableSchema:
    """The table that the server describes, as of now. Raises `NotSupported` where the text is not understood.

    The text always names the table's charset, so the database's does not matter. A sequence has no columns.
    """
    made = apply_ddl(Statement(text, schema, mariadb=mariadb), Catalog(), version)
    if len(made) != 1 or made[0].parked:
        reason = made[0].reason if made else "no CREATE TABLE"
        raise NotSupported(f"a table definition that Penstock does not understand ({reason}): {text[:120]!r}")
    (table,) = made
    return table if table.is_sequence else replace(table, ddl_type=DdlType.CREATE_TABLE)
