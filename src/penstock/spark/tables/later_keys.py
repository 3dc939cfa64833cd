"""The keys in files that come after those that a task reads: what is changed there, is not the task's row any more.

So several tasks share a table as it is now: each reads some files whole, and of the later ones the keys alone, as deletes.
Of Parquet only these columns are fetched.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.encode.parquet.encoder import Parquet
from penstock.errors import Corruption
from penstock.objects import ObjectStore
from penstock.schema.model import TableSchema
from penstock.spark.tables.rows import changes_schema, nulls, rows_of_file, up_to
from penstock.spark.tables.sink import DataFile, Sink


def later_keys(sink: Sink, file: DataFile, table: TableSchema, last: int | None) -> pa.Table:
    """A delete of each key in the file, up to a commit_ts. `table` is the version of its directory."""
    keys = [table.columns[i].name for i in table.primary_key]
    if sink.format == Parquet.name:
        rows = up_to(_columns(sink, file, ["_commit_ts", *keys]), last)
    else:
        rows = rows_of_file(sink, file, table, last)
    schema = changes_schema(table)
    made: dict[str, Any] = {field.name: nulls(rows.num_rows, field.type) for field in schema}
    made |= {name: rows.column(name).cast(schema.field(name).type) for name in keys}
    made["_op"] = pa.array(np.full(rows.num_rows, "D", "<U1"), pa.string())
    return pa.table(made, schema=schema)


def _columns(sink: Sink, file: DataFile, names: list[str]) -> pa.Table:
    size = sink.objects.size(file.path)
    if size is None:
        raise sink.gone(file.path)
    try:
        opened: Any = pq.ParquetFile(pa.PythonFile(_Ranges(sink.objects, file.path, size), mode="r"))
        found: pa.Table = opened.read(columns=names, use_threads=False).select(names)
        return found
    except FileNotFoundError as error:
        raise sink.gone(file.path) from error
    except (pa.ArrowException, KeyError) as error:
        raise Corruption(f"{sink.url}: {file.path} cannot be read: {error}") from error


class _Ranges(io.RawIOBase):
    """An object as a file, of which only what is read is fetched."""

    def __init__(self, objects: ObjectStore, name: str, size: int) -> None:
        self._objects = objects
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        data = self._objects.get(self._name, self._at, count) if count else b""
        self._at += len(data)
        return data
