"""Parquet: `_op`, `_commit_ts`, `_seq`, then the table's columns (docs/formats/parquet.md).

Rows of one Parquet file share its dictionaries and pages, so a file is written once, from all its rows; until then a
payload is an Arrow IPC stream. The bytes of a file depend on its rows alone: a file that is made again after a crash is
the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from penstock.commit_ts import milliseconds_of_all
from penstock.encode.format import OPS, shown_images
from penstock.encode.parquet.columns import TIMESTAMP, parquet_type, parquet_values
from penstock.errors import BadInput, NotSupported
from penstock.files import Buffer
from penstock.schema.changes import ChangeBatch
from penstock.schema.model import TableSchema

ROW_GROUP_ROWS = 131_072  # fixed, so that the bytes depend on the rows alone

# lz4 costs the task a fifth of a microsecond per row, and halves what waits in the spool.
_PAYLOAD_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

_OWN = ("_op", "_commit_ts", "_seq")


class Parquet:
    name = "parquet"
    extension = ".parquet"

    def row_bytes_min(self, table: TableSchema) -> int:
        return 1  # a NULL is a bit, and compressed

    def encode(self, batch: ChangeBatch) -> Buffer:
        schema = parquet_schema(batch.table)
        columns = [_ops(batch), _commit_times(batch), _seqs(batch)]
        columns += [parquet_values(*pair) for pair in zip(batch.table.columns, shown_images(batch), strict=True)]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema, options=_PAYLOAD_OPTIONS) as writer:
            writer.write_batch(pa.record_batch(columns, schema=schema))
        return memoryview(sink.getvalue())

    def assemble(self, payloads: Sequence[Buffer]) -> Buffer:
        tables = [pa.ipc.open_stream(pa.py_buffer(payload)).read_all() for payload in payloads]
        if not tables:
            raise BadInput("a Parquet file needs at least one payload")
        if any(table.schema != tables[0].schema for table in tables):
            raise BadInput("payloads of different table versions cannot share a Parquet file")
        # One chunk per column: page boundaries follow the chunks, which must not depend on how rows came in payloads.
        table = pa.concat_tables(tables).combine_chunks()
        if any(column.num_chunks > 1 for column in table.columns):
            raise BadInput("more than 2 GiB in one column of a Parquet file", hint="lower sinks.NAME.flush.size")
        sink = pa.BufferOutputStream()
        pq.write_table(
            table,
            sink,
            row_group_size=ROW_GROUP_ROWS,
            compression="zstd",
            compression_level=1,
            version="2.6",
            store_schema=False,
        )
        return memoryview(sink.getvalue())

    def rows(self, file: Buffer) -> pa.Table:
        return pq.read_table(pa.BufferReader(pa.py_buffer(file)))


def parquet_schema(table: TableSchema) -> pa.Schema:
    """The columns of the files of a table version."""
    for column in table.columns:
        if column.name.lower() in _OWN:
            raise NotSupported(
                f"{table.name} has a column {column.name}, a name that Parquet files of Penstock use themselves",
                hint="choose canal-json for this sink (sinks.NAME.format) or rename the column",
            )
    fields: list[pa.Field[Any]] = [
        pa.field("_op", pa.string(), nullable=False),
        pa.field("_commit_ts", TIMESTAMP, nullable=False),
        pa.field("_seq", pa.binary(), nullable=False),
    ]
    fields += [pa.field(column.name, parquet_type(column)) for column in table.columns]
    return pa.schema(fields)


def _ops(batch: ChangeBatch) -> pa.Array[Any]:
    unknown = set(np.unique(batch.op).tolist()) - OPS
    if unknown:
        raise BadInput(f"unknown operations {sorted(unknown)} in a batch of changes")
    # The codes are the letters themselves, so the array is the data of a column of one-byte strings.
    offsets = np.arange(len(batch) + 1, dtype=np.int32)
    return pa.StringArray.from_buffers(len(batch), pa.py_buffer(offsets.data), pa.py_buffer(batch.op.tobytes()))


def _commit_times(batch: ChangeBatch) -> pa.Array[Any]:
    micros = milliseconds_of_all(batch.commit_ts).astype(np.int64) * 1000
    return pa.array(micros, pa.int64()).view(TIMESTAMP)


def _seqs(batch: ChangeBatch) -> pa.Array[Any]:
    data = np.ascontiguousarray(batch.seq).tobytes()
    offsets = np.arange(len(batch) + 1, dtype=np.int32) * batch.seq.dtype.itemsize
    return pa.BinaryArray.from_buffers(pa.binary(), len(batch), [None, pa.py_buffer(offsets.data), pa.py_buffer(data)])
