"""Rows of changes as typed columns, whatever they come from, and the columns of one table version as those of another.

A table of rows has `_op` (I, U, D), `_commit_ts`, `_seq`, and the table's columns in the types of docs/types.md. An update
that changes the row's key is two rows, D and I, as in every format.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.commit_ts import milliseconds_of, milliseconds_of_all
from penstock.encode import open_format
from penstock.encode.debezium_json.encoder import DebeziumJson
from penstock.encode.parquet.columns import TIMESTAMP, parquet_type
from penstock.encode.parquet.encoder import Parquet
from penstock.errors import BadInput, Corruption, NotSupported
from penstock.schema.changes import ChangeBatch
from penstock.schema.model import CHARACTER_TYPES, Column, TableSchema
from penstock.spark.tables.history import shown_statement
from penstock.spark.tables.sink import DataFile, Sink
from penstock.spark.tables.text_values import typed_values

_WRITTEN = CHARACTER_TYPES | {"json"}  # a whole number is its digits there
OWN: dict[str, pa.DataType] = {"_op": pa.string(), "_commit_ts": TIMESTAMP, "_seq": pa.binary()}


def columns_schema(table: TableSchema) -> pa.Schema:
    """The table's columns in the types that Spark gets."""
    for column in table.columns:
        if column.name.lower() in OWN:
            raise NotSupported(
                f'{table.name} has a column {column.name}, a name that format("penstock") uses itself',
                hint="read without the option table: rows then come as JSON",
            )
    return pa.schema([pa.field(column.name, parquet_type(column)) for column in table.columns])


def changes_schema(table: TableSchema) -> pa.Schema:
    """`_op`, `_commit_ts`, `_seq`, then the columns: as in the sink's own Parquet files."""
    return pa.schema([*(pa.field(name, kind) for name, kind in OWN.items()), *columns_schema(table)])


def rows_of_batch(batch: ChangeBatch) -> pa.Table:
    """Decoded changes of the log as rows."""
    rows = Parquet().rows_of(batch)
    return rows.cast(changes_schema(batch.table))  # nothing is declared as never null to Spark


def rows_of_file(sink: Sink, file: DataFile, table: TableSchema, last: int | None) -> pa.Table:
    """The rows of a sink's file up to a commit_ts, or all of them. `table` is the version of its directory. `_commit_ts` and
    `_seq` are null where the format has no place for them."""
    fmt = open_format(sink.format, sink.options)
    content = sink.read(file.path)
    try:
        keyless = not table.primary_key
        rows = fmt.rows(content, keyless=keyless) if isinstance(fmt, DebeziumJson) else fmt.rows(content)
        return _typed(up_to(rows, last), table, sink)
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise Corruption(f"{sink.url}: {file.path} cannot be read: {error}") from error


def up_to(rows: pa.Table, last: int | None) -> pa.Table:
    """The rows up to a commit_ts, or all; with `_commit_ts` as a time, whichever number or time the format has."""
    if "_commit_ts" not in rows.column_names:
        return rows
    column = rows.column("_commit_ts")
    if pa.types.is_timestamp(column.type):  # to the millisecond
        if last is None:
            return rows
        return rows.filter(pc.less_equal(column, pa.scalar(milliseconds_of(last) * 1000, pa.int64()).cast(TIMESTAMP)))
    kept = rows if last is None else rows.filter(pc.less_equal(column, pa.scalar(last, pa.int64())))
    numbers = np.asarray(kept.column("_commit_ts").to_numpy()).astype(np.uint64)
    times = pa.array(milliseconds_of_all(numbers).astype(np.int64) * 1000, pa.int64()).view(TIMESTAMP)
    return kept.set_column(kept.column_names.index("_commit_ts"), "_commit_ts", times)


def _typed(rows: pa.Table, table: TableSchema, sink: Sink) -> pa.Table:
    names = rows.column_names
    if sink.format == "csv" and "c0" in names and not getattr(sink.options, "output_field_header", False):
        own = [name for name in names if name in OWN]
        rows = rows.rename_columns([*own, *(column.name for column in table.columns)])
    made: dict[str, Any] = {name: _column(rows, name, kind) for name, kind in OWN.items()}
    for column in table.columns:
        values = _column(rows, column.name, pa.string())
        if sink.format != "parquet":
            values = typed_values(column, values, sink.format, sink.options)
        made[column.name] = values
    return pa.table(made).cast(changes_schema(table))


def _column(rows: pa.Table, name: str, kind: pa.DataType) -> pa.Array[Any]:
    """One array; all null where the rows do not have the column."""
    if name not in rows.column_names:
        return nulls(rows.num_rows, kind)
    return one_array(rows.column(name))


def nulls(count: int, kind: Any) -> pa.Array[Any]:
    made: pa.Array[Any] = pa.nulls(count, kind)
    return made


def one_array(values: Any) -> pa.Array[Any]:
    """A column of a table as one array."""
    made: pa.Array[Any] = (
        values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks or [nulls(0, values.type)])
    )
    return made


def fitted(rows: pa.Table, source: TableSchema, target: TableSchema) -> pa.Table:
    """Rows of one version with the columns of another: by name, in a type that holds the same values. A column that the
    source does not have is null. Raises `BadInput` where values of a column cannot be those of the other."""
    if source.columns == target.columns:
        return rows
    old = {column.name.lower(): column for column in source.columns}
    made: dict[str, Any] = {name: rows.column(name) for name in rows.column_names if name in OWN}
    for column in target.columns:
        before = old.get(column.name.lower())
        if before is None:
            made[column.name] = nulls(rows.num_rows, parquet_type(column))
        else:
            made[column.name] = converted(rows.column(before.name), before, column, target)
    return pa.table(made)


def converted(values: Any, before: Column, after: Column, target: TableSchema) -> Any:
    """A column after a statement changed its type, as the server converts it; refused where that may change values."""
    kind = parquet_type(after)
    if values.type == kind:
        return values
    try:
        if _holds(values.type, kind, after):
            return values.cast(kind)
        reason = "values of one cannot be told as values of the other"
    except pa.ArrowInvalid as error:
        reason = str(error)
    raise BadInput(
        f"{target.name}: column {after.name} was {before.mysql_type} and is {after.mysql_type} since "
        f"{shown_statement(target)}: {reason}",
        hint="read without the option table: rows then come as JSON",
    )


def _holds(old: pa.DataType, new: pa.DataType, column: Column) -> bool:
    """Whether the new type, that of `column`, has every value of the old one, as the server would convert it; a cast checks the
    rest."""
    whole = pa.types.is_integer
    if whole(old):
        return whole(new) or pa.types.is_decimal(new) or column.base_type in _WRITTEN
    if pa.types.is_decimal(old):
        return pa.types.is_decimal(new) and new.scale >= old.scale
    return pa.types.is_float32(old) and pa.types.is_float64(new)
