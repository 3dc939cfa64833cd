"""Parquet: `_op`, `_commit_ts`, `_seq`, then the table's columns (docs/formats/parquet.md).

A payload is a whole Parquet file; joining takes its row groups as they are, so that only tasks compress. The same rows in
the same payloads give the same bytes. An update that changes the key is two rows, a delete and an insert, so that the last row of a key always tells
what became of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.commit_ts import milliseconds_of_all
from penstock.encode.images import check_ops, key_changes, shown_images, split_updates
from penstock.encode.parquet.columns import TIMESTAMP, parquet_type, parquet_values
from penstock.encode.parquet.file import ParquetFile
from penstock.encode.settings import ParquetOptions
from penstock.errors import NotSupported
from penstock.files import Buffer
from penstock.schema.changes import ChangeBatch
from penstock.schema.model import TableSchema

ROW_GROUP_ROWS = 131_072
_LEVELS = {"zstd": 1, "gzip": 6}

_OWN = ("_op", "_commit_ts", "_seq")


class Parquet:
    name = "parquet"
    extension = ".parquet"

    def __init__(self, options: ParquetOptions = ParquetOptions()) -> None:  # noqa: B008 - frozen
        self._compression = options.compression

    def row_bytes_min(self, table: TableSchema) -> int:
        return 1  # a NULL is a bit, and compressed

    def encode(self, batch: ChangeBatch) -> Buffer:
        sink = pa.BufferOutputStream()
        pq.write_table(
            self.rows_of(batch),
            sink,
            row_group_size=ROW_GROUP_ROWS,
            compression=self._compression,
            compression_level=_LEVELS.get(self._compression),
            version="2.6",
            store_schema=False,
        )
        return memoryview(sink.getvalue())

    def join(self, payloads: Iterable[Buffer]) -> Iterator[Buffer]:
        return ParquetFile().join(payloads)

    def assemble(self, payloads: Sequence[Buffer]) -> Buffer:
        return b"".join(self.join(payloads))

    def pieces(self, file: Buffer, *, before: bool = False) -> Iterator[pa.Table]:
        del before  # there is nothing of it
        opened = _opened(file)
        for group in range(opened.num_row_groups):
            yield opened.read_row_group(group, use_threads=False)

    def rows_of(self, batch: ChangeBatch) -> pa.Table:
        check_ops(batch.op)
        schema = parquet_schema(batch.table)
        batch = split_updates(batch, key_changes(batch)).batch
        columns = [change_ops(batch), commit_times(batch), _seqs(batch)]
        columns += [
            parquet_values(*pair) for pair in zip(batch.table.columns, shown_images(batch).columns, strict=True)
        ]
        return pa.Table.from_batches([pa.record_batch(columns, schema=schema)])

    def rows(self, file: Buffer) -> pa.Table:
        return _opened(file).read(use_threads=False)


def _opened(file: Buffer) -> pq.ParquetFile:
    """To be read on the caller's thread: one of Arrow's that lets go of a buffer of Python's while the process ends aborts
    it (apache/arrow issue 34314)."""
    return pq.ParquetFile(pa.BufferReader(pa.py_buffer(file)))


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


def change_ops(batch: ChangeBatch) -> pa.Array[Any]:
    """The letter of each row's operation."""
    # The codes are the letters themselves, so the array is the data of a column of one-byte strings.
    offsets = np.arange(len(batch) + 1, dtype=np.int32)
    return pa.StringArray.from_buffers(len(batch), pa.py_buffer(offsets.data), pa.py_buffer(batch.op.tobytes()))


def commit_times(batch: ChangeBatch) -> pa.Array[Any]:
    """When each row was committed, to the millisecond."""
    micros = milliseconds_of_all(batch.commit_ts).astype(np.int64) * 1000
    return pa.array(micros, pa.int64()).view(TIMESTAMP)


def _seqs(batch: ChangeBatch) -> pa.Array[Any]:
    data = np.ascontiguousarray(batch.seq).tobytes()
    offsets = np.arange(len(batch) + 1, dtype=np.int32) * batch.seq.dtype.itemsize
    return pa.BinaryArray.from_buffers(pa.binary(), len(batch), [None, pa.py_buffer(offsets.data), pa.py_buffer(data)])
