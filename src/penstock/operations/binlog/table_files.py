"""The files of tables in a directory: Parquet, or Arrow's IPC format.

Rows of a table wait until there are enough for a row group, of all tables together up to `WAITING_BYTES_MAX`. At most
`OPEN_MAX` files are open: a table that comes again after its file was closed gets the next one.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, Protocol, cast

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from penstock.errors import BadInput
from penstock.files.private import open_private
from penstock.files.real import RealFiles
from penstock.schema.model import TableSchema

TableFormat = Literal["parquet", "arrow"]

ROW_GROUP_BYTES = 32 << 20
WAITING_BYTES_MAX = 128 << 20
OPEN_MAX = 64
NAME_BYTES_MAX = 224  # of a file's name without number and extension: file systems take 255
_PLAIN = re.compile(r"[^A-Za-z0-9_$-]")


class _Writer(Protocol):
    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Open:
    schema: pa.Schema
    sink: IO[bytes]
    writer: _Writer
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0


class TableFiles:
    """Writes to `directory`, which is made, or is empty."""

    def __init__(self, directory: Path, format: TableFormat, open_max: int = OPEN_MAX) -> None:
        self._directory = directory
        self._format = format
        self._open_max = open_max
        self._open: OrderedDict[tuple[str, str], _Open] = OrderedDict()  # the one written last is at the end
        self._numbers: dict[tuple[str, str], int] = {}
        self._waiting_bytes = 0

    def write(self, table: TableSchema, batch: pa.RecordBatch) -> None:
        key = (table.schema, table.table)
        one = self._open.get(key)
        if one is not None and one.schema != batch.schema:
            self._close(key)
            one = None
        if one is None:
            one = self._create(key, batch.schema)
        self._open.move_to_end(key)
        one.waiting.append(batch)
        one.waiting_bytes += batch.nbytes
        self._waiting_bytes += batch.nbytes
        if one.waiting_bytes >= ROW_GROUP_BYTES:
            self._flush(one)
        while self._waiting_bytes > WAITING_BYTES_MAX:
            self._flush(max(self._open.values(), key=lambda other: other.waiting_bytes))

    def close(self) -> None:
        """All files are complete afterwards. Where one cannot be, the others are, and its error is raised."""
        with contextlib.ExitStack() as stack:
            for key in self._open:
                stack.callback(self._close, key)

    def _create(self, key: tuple[str, str], schema: pa.Schema) -> _Open:
        while len(self._open) >= self._open_max:
            self._close(next(iter(self._open)))
        number = self._numbers[key] = self._numbers.get(key, 0) + 1
        middle = f".{number}" if number > 1 else ""
        path = self._directory / f"{file_name(*key)}{middle}.{self._format}"
        sink = open_private(path, "xb")
        one = self._open[key] = _Open(schema, sink, _WRITERS[self._format](sink, schema))
        return one

    def _flush(self, one: _Open) -> None:
        if one.waiting:
            one.writer.write_table(pa.Table.from_batches(one.waiting))
        self._waiting_bytes -= one.waiting_bytes
        one.waiting, one.waiting_bytes = [], 0

    def _close(self, key: tuple[str, str]) -> None:
        one = self._open.pop(key)
        with one.sink:
            self._flush(one)
            one.writer.close()


class _ParquetWriter:
    def __init__(self, sink: IO[bytes], schema: pa.Schema) -> None:
        self._writer: Any = pq.ParquetWriter(sink, schema, compression="zstd", compression_level=1, version="2.6")

    def write_table(self, table: pa.Table) -> None:
        with self._once():
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        with self._once():
            self._writer.close()

    @contextlib.contextmanager
    def _once(self) -> Iterator[None]:
        """After a failure Arrow must not try again when the writer is collected: it would complain on standard error."""
        try:
            yield
        except BaseException:
            self._writer.is_open = False
            raise


_WRITERS: dict[str, Callable[[IO[bytes], pa.Schema], _Writer]] = {
    "parquet": _ParquetWriter,
    "arrow": cast(Any, pa.ipc.new_file),
}


def file_name(schema: str, table: str) -> str:
    """`schema.table`, in characters that every file system and shell takes as they are, and no more than it takes.

    A name of 64 letters that are not ASCII is too long once it is escaped: it is cut, and a digest tells it from others.
    """

    def escaped(match: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in match[0].encode())

    whole = ".".join(_PLAIN.sub(escaped, name) for name in (schema, table))
    if len(whole) <= NAME_BYTES_MAX:
        return whole
    digest = hashlib.sha256(f"{schema}\0{table}".encode()).hexdigest()[:16]
    return f"{whole[: NAME_BYTES_MAX - 17]}~{digest}"


def prepare_directory(path: Path) -> None:
    """Makes the directory for the files. Raises `BadInput` if something is in it."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"--out {path} is not an empty directory", hint="name one that is not there yet")
    RealFiles().make_directory(path)
