"""A stream's columns are fixed while it runs: which later versions of its table it cannot tell, and what it says then."""

from __future__ import annotations

from penstock.encode.parquet.columns import parquet_type
from penstock.errors import Terminal
from penstock.schema.model import TableSchema
from penstock.spark.tables.history import shown_statement

START_AGAIN = "load the DataFrame again and start the query again: it goes on there with the new columns"


class ColumnsChanged(Terminal):
    """The next change of the table has other columns than the stream."""


def columns_changed(table: TableSchema, where: str, hint: str = START_AGAIN) -> ColumnsChanged:
    """`where`: the place of the statement, as the stream's offsets tell it."""
    return ColumnsChanged(
        f"the columns of {table.name} change at {where}: {shown_statement(table)}. Every row before it was delivered, and "
        "none after it",
        hint=hint,
    )


def has_other_columns(table: TableSchema, target: TableSchema | None) -> bool:
    """Rows of versions before the target are told in its columns; those of later ones would lose some. Without a target
    rows are told as JSON, whatever their columns."""
    if target is None or table.version <= target.version or not table.columns:
        return False
    return _shape(table) != _shape(target)


def _shape(table: TableSchema) -> list[tuple[str, str]]:
    """What Spark sees of a version: names and types of its columns."""
    return [(column.name, str(parquet_type(column))) for column in table.columns]
