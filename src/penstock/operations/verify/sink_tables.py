"""The tables of one storage sink: reads their data files, and compares each table with the changes that the log expects."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from penstock.encode.format import FileFormat
from penstock.encode.poison import accepted
from penstock.files import Buffer
from penstock.files.private import unnamed_file
from penstock.log.position import Seq
from penstock.objects import ObjectStore
from penstock.operations.verify.line_comparison import LineComparison
from penstock.operations.verify.report import SinkReport
from penstock.operations.verify.sink_files import SinkFiles
from penstock.operations.verify.table_comparison import FileRows, TableComparison, file_rows
from penstock.schema.changes import ChangeBatch

_LINES = ("canal-json", "debezium-json")
_AFTER_ALL_OPS = b"Z"
HELD_BYTES_MAX = 384 << 20


class _File(NamedTuple):
    """`version`: that of the directory in which it is."""

    name: str
    version: int


class SinkTables:
    """Every table of one sink. A table's comparison begins with its first expected change or its first file.

    Of each table the file that is read is there, and of it the rows that were not compared yet. Above `HELD_BYTES_MAX` these
    are files on disk that the system reads as they are needed: memory does not grow with the number of tables or rows.
    """

    def __init__(  # noqa: PLR0917
        self,
        objects: ObjectStore,
        fmt: FileFormat,
        found: SinkFiles,
        report: SinkReport,
        spill: Path,
        expired_before: str = "",
    ) -> None:
        self._objects = objects
        self._format = fmt
        self._first: Seq | None = None
        self._first_of: dict[tuple[str, str], Seq] = {}
        self._report = report
        self._spill = spill
        self._held_bytes = 0
        self._unreadable: set[str] = set()
        self._files: dict[tuple[str, str], list[_File]] = {}
        self.comparisons: dict[tuple[str, str], TableComparison | LineComparison] = {}
        for directory in found.directories:
            if directory.date < expired_before:  # its files are being deleted
                continue
            for fault in directory.faults:
                report.fault(fault)
            files = (_File(name, directory.version) for name in directory.files)
            self._files.setdefault((directory.schema, directory.table), []).extend(files)

    def begin_at(self, first: Seq) -> None:
        """Rows before it belong to entries that were trimmed. Before anything is compared."""
        self._first = first

    def begin_table_at(self, key: tuple[str, str], first: Seq) -> None:
        """The same for one table: nobody knows what its rows before must be."""
        self._first_of[key] = first if self._first is None else max(self._first, first)

    @property
    def files_count(self) -> int:
        return sum(map(len, self._files.values()))

    def expect(self, batch: ChangeBatch, *, may_be_pending: bool) -> list[Seq]:
        """Compares the next changes of a table with its files. Returns those of them that the format refuses."""
        comparison = self._of((batch.table.schema, batch.table.table))
        refused: list[Seq] = []
        version = batch.table.version
        if isinstance(comparison, LineComparison):
            for part, lines, _ in accepted(self._format.encode, batch):
                if lines is None:
                    refused.append(Seq.from_bytes(part.seq[0].tobytes()))
                else:
                    last = part.seq[-1].tobytes() + _AFTER_ALL_OPS
                    comparison.expect(lines, version, len(part), last, may_be_pending=may_be_pending)
        else:
            for part, rows, _ in accepted(self._format.rows_of, batch):
                if rows is None:
                    refused.append(Seq.from_bytes(part.seq[0].tobytes()))
                else:
                    comparison.expect(rows, version, may_be_pending=may_be_pending)
        return refused

    def rows(self, key: tuple[str, str]) -> Iterator[pa.Table]:
        """Every row in the files of a table, in order, a piece of a file at a time."""
        for file in self._files.get(key, []):
            yield from self._pieces(file.name, self._data(file.name))

    def finish(self) -> None:
        """Compares the rest of every table, and adds the differences to the report."""
        for key in self._files:
            self._of(key)  # also tables with files that the log does not know
        for key, comparison in self.comparisons.items():
            found = comparison.finish()
            table = self._report.table(".".join(key))
            table.differences = found
            self._report.differences.add(found)
            self._report.before_log += comparison.before
            if isinstance(comparison, LineComparison) and comparison.altered:
                self._report.notes.append(
                    f"{table.name}: some lines are not those that this version writes; the values of their rows are equal"
                )
            for example in found.examples:
                self._report.fault(f"{table.name}: {example}")

    def _of(self, key: tuple[str, str]) -> TableComparison | LineComparison:
        if key not in self.comparisons:
            files = self._files.get(key, [])
            first = self._first_of.get(key, self._first)
            if self._format.name in _LINES:
                read = ((*file, data) for file, data in self._held_files(files))
                self.comparisons[key] = LineComparison(read, self._line_rows, first)
            else:
                self.comparisons[key] = TableComparison(self._file_rows(files, first))
        return self.comparisons[key]

    def _held_files(self, files: list[_File]) -> Iterator[tuple[_File, Buffer]]:
        """The content of each file, which counts as held until the next is asked for."""
        for file in files:
            data = self._data(file.name)
            size = len(data)
            if self._held_bytes + pa.total_allocated_bytes() + size > HELD_BYTES_MAX:
                yield file, self._on_disk(data)
                continue
            self._held_bytes += size
            yield file, data
            self._held_bytes -= size

    def _file_rows(self, files: list[_File], first: Seq | None) -> Iterator[FileRows]:
        for file, data in self._held_files(files):
            for piece in self._pieces(file.name, data):
                found = file_rows(piece, file.version, first)
                if self._held_bytes + pa.total_allocated_bytes() > HELD_BYTES_MAX:
                    found = found._replace(rows=self._rows_on_disk(found.rows))
                yield found

    def _line_rows(self, name: str, version: int, lines: Buffer, first: Seq | None = None) -> Iterator[FileRows]:
        return (file_rows(piece, version, first) for piece in self._pieces(name, lines, before=True))

    def _pieces(self, name: str, data: Buffer, *, before: bool = False) -> Iterator[pa.Table]:
        try:
            for piece in self._format.pieces(data, before=before):
                if not {"_seq", "_op"} <= set(piece.column_names):
                    raise ValueError("it has no column _seq or _op")
                yield piece
        except (pa.ArrowException, ValueError, KeyError, OSError) as error:
            self._unreadable_file(name, f"{name} cannot be read: {error}")

    def _data(self, name: str) -> bytes:
        size = self._objects.size(name)
        if size is None:
            self._unreadable_file(name, f"{name} is gone")
            return b""
        return self._objects.get(name, 0, size) if size else b""  # `read` would make a name for the content, too

    def _on_disk(self, data: bytes) -> Buffer:
        """The same bytes, which the system reads from the disk as they are needed."""
        if not data:
            return data
        with unnamed_file(self._spill) as file:
            file.write(data)
            file.flush()
            return memoryview(mmap.mmap(file.fileno(), len(data), prot=mmap.PROT_READ))

    def _rows_on_disk(self, rows: pa.Table) -> pa.Table:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        return pa.ipc.open_stream(pa.py_buffer(self._on_disk(sink.getvalue().to_pybytes()))).read_all()

    def _unreadable_file(self, name: str, why: str) -> None:
        if name not in self._unreadable:
            self._unreadable.add(name)
            self._report.fault(why)
