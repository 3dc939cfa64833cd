"""All changes of all tables in one shape: (op, table, commit_ts, position, before, after), the images as JSON objects.

Values have the form that Spark's own `from_json` reads back with the table's types: numbers with all their digits, dates as
`2024-05-01`, times as `2024-05-01 12:00:00.5` (a TIMESTAMP with a Z), bytes in base64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.images import images_with
from penstock.encode.lines import chosen_rows, objects, seq_text
from penstock.encode.parquet.columns import TIMESTAMP, parquet_values
from penstock.encode.parquet.encoder import change_ops, commit_times
from penstock.encode.text import JSON_STRING, Text, as_strings, bytes_text, json_strings, string_data, text_of
from penstock.schema.changes import SEQ_DTYPE, ChangeBatch
from penstock.schema.model import Column, TableSchema
from penstock.spark.tables.rows import nulls, one_array

_FIELDS: list[pa.Field[Any]] = [
    pa.field("op", pa.string()),
    pa.field("table", pa.string()),
    pa.field("commit_ts", TIMESTAMP),
    pa.field("position", pa.string()),
    pa.field("before", pa.string()),
    pa.field("after", pa.string()),
]
SCHEMA = pa.schema(_FIELDS)
ROWS_AT_ONCE = 16_384  # so that the text of one batch stays far below what an Arrow string column holds

Mask = npt.NDArray[np.bool_]


def json_of_batch(batch: ChangeBatch) -> pa.Table:
    """Decoded changes of the log: an update is one row, with both images. A column that was not logged has no key."""
    columns = batch.table.columns
    present = [images_with(batch, ordinal) for ordinal in range(len(columns))]
    images = []
    for which, arrays, has in ((0, batch.before, batch.op != ord("I")), (1, batch.after, batch.op != ord("D"))):
        chosen = np.array([both[which] for both in present], np.bool_).reshape(len(columns), len(batch))
        typed = [parquet_values(column, values) for column, values in zip(columns, arrays, strict=True)]
        images.append(_objects(columns, typed, chosen, has))
    return pa.table(
        [
            change_ops(batch),
            _repeated(batch.table.name, len(batch)),
            commit_times(batch),
            _positions(batch.seq),
            *images,
        ],
        schema=SCHEMA,
    )


def json_of_rows(rows: pa.Table, table: TableSchema) -> pa.Table:
    """Rows of a sink's file (rows.py): what a file has of a change is the row after it, or before a delete."""
    rows = rows.combine_chunks()
    ops = one_array(rows.column("_op"))
    deleted = np.asarray(pc.equal(ops, pa.scalar("D")).to_numpy(zero_copy_only=False))
    typed = [one_array(rows.column(column.name)) for column in table.columns]
    every = np.ones((len(typed), rows.num_rows), np.bool_)
    seq = one_array(rows.column("_seq"))
    positions: pa.Array[Any] = nulls(rows.num_rows, pa.string())
    if rows.num_rows and not seq.null_count:
        data, bounds = string_data(seq)
        positions = _positions(data[bounds[0] : bounds[-1]].view(SEQ_DTYPE))
    return pa.table(
        [
            ops,
            _repeated(table.name, rows.num_rows),
            one_array(rows.column("_commit_ts")),
            positions,
            _objects(table.columns, typed, every, deleted),
            _objects(table.columns, typed, every, ~deleted),
        ],
        schema=SCHEMA,
    )


def _objects(columns: tuple[Column, ...], values: list[pa.Array[Any]], chosen: Mask, rows: Mask) -> pa.Array[Any]:
    """A JSON object for each of `rows`; null for the others."""
    mine = chosen[:, rows]
    tokens = [_token(chosen_rows(chosen_rows(array, rows), mine[ordinal])) for ordinal, array in enumerate(values)]
    text = objects(columns, tokens, mine, rows)
    return as_strings(text, pa.array(np.zeros(len(rows), np.int8), mask=~rows))


def _token(values: pa.Array[Any]) -> Text:
    """The values of a typed column as JSON."""
    kind = values.type
    if pa.types.is_string(kind):
        return json_strings(values)
    if pa.types.is_binary(kind):
        return bytes_text(values, JSON_STRING)
    text: Any = pc.cast(values, pa.string())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return json_strings(text)
    if pa.types.is_floating(kind):
        text = pc.if_else(pc.is_finite(values), text, pc.binary_join_element_wise('"', text, '"', ""))
    return text_of(text, "null")


def _positions(seq: npt.NDArray[np.void]) -> pa.Array[Any]:
    return as_strings(seq_text(seq), pa.array(np.zeros(len(seq), np.int8)))


def _repeated(text: str, count: int) -> pa.Array[Any]:
    return pa.array([text]).take(np.zeros(count, np.int64))
