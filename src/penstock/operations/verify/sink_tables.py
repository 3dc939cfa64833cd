"""The tables of one storage sink: finds and reads their data files, and compares each table with the changes that the log
expects.

A file counts once its directory's index names it or a later one. Files beyond the index are left over from a write that
never finished; consumers do not read them, and neither does this comparison.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow as pa

from penstock.delivery.storage.expiry import expired_before
from penstock.encode.format import FileFormat
from penstock.log.position import Seq
from penstock.objects import ObjectStore
from penstock.operations.verify.report import SinkReport
from penstock.operations.verify.table_comparison import TableComparison

_DATA_FILE = re.compile(r"^CDC(?:_[0-9a-f]{32}_)?(\d+)\.[a-z]+$")
_INDEX_DIRECTORIES = ("meta", "_meta")
_INDEX_NAME = "CDC.index"


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """One table version on one date: the names of all files that count, in order; `faults` says which are missing."""

    schema: str
    table: str
    version: int
    date: str
    files: tuple[str, ...]
    faults: tuple[str, ...] = field(default=())


def data_directories(objects: ObjectStore) -> list[DataDirectory]:
    """Every data directory of the sink, in commit order for each table."""
    numbered: dict[str, dict[int, str]] = {}
    indexes: dict[str, str] = {}
    for name in objects.walk():
        directory, _, file = name.rpartition("/")
        above, _, last = directory.rpartition("/")
        if file == _INDEX_NAME and last in _INDEX_DIRECTORIES:
            indexes[above] = name
            numbered.setdefault(above, {})
        elif match := _DATA_FILE.match(file):
            numbered.setdefault(directory, {})[int(match.group(1))] = name
    found = [_directory(objects, name, files, indexes.get(name)) for name, files in numbered.items()]
    return sorted(found, key=lambda d: (d.schema, d.table, d.version, d.date))


def _directory(objects: ObjectStore, directory: str, numbered: dict[int, str], index: str | None) -> DataDirectory:
    parts = directory.split("/")
    schema, table = unquote(parts[0]), unquote(parts[1])
    version = int(parts[2].removeprefix("version="))
    date = parts[3].removeprefix("date=") if len(parts) > 3 else ""
    content = objects.read(index) if index is not None else None
    if content is None:
        return DataDirectory(schema, table, version, date, ())
    name = content.data.decode(errors="replace").removesuffix("\n")
    match = _DATA_FILE.match(name)
    if match is None:
        return DataDirectory(
            schema, table, version, date, (), (f"{index} holds {name!r}, which is no data file's name",)
        )
    last = int(match.group(1))
    faults = tuple(
        f"{directory}: file {number} of {last} is missing" for number in range(1, last + 1) if number not in numbered
    )
    files = tuple(numbered[number] for number in range(1, last + 1) if number in numbered)
    return DataDirectory(schema, table, version, date, files, faults)


class SinkTables:
    """Every table of one sink. A table's comparison begins with its first expected change or its first file."""

    def __init__(self, objects: ObjectStore, fmt: FileFormat, report: SinkReport, first: Seq | None) -> None:
        self._objects = objects
        self._format = fmt
        self._first = first
        self._report = report
        self._files: dict[tuple[str, str], list[str]] = {}
        self.comparisons: dict[tuple[str, str], TableComparison] = {}
        self.expired_before = expired_before(objects)
        for directory in data_directories(objects):
            if directory.date < self.expired_before:  # its files are being deleted
                continue
            for fault in directory.faults:
                report.fault(fault)
            self._files.setdefault((directory.schema, directory.table), []).extend(directory.files)

    def of(self, key: tuple[str, str]) -> TableComparison:
        if key not in self.comparisons:
            files = self._files.get(key, [])
            self.comparisons[key] = TableComparison(".".join(key), iter(files), self._read, self._first)
        return self.comparisons[key]

    def kept(self, key: tuple[str, str]) -> list[pa.Table]:
        """Every row in the files of a table; once `finish` has read them."""
        return self.comparisons[key].kept if key in self.comparisons else []

    def _read(self, name: str) -> pa.Table:
        found = self._objects.read(name)
        try:
            if found is not None:
                return self._format.rows(found.data)
            self._report.fault(f"{name} is gone")
        except (pa.ArrowException, ValueError) as error:
            self._report.fault(f"{name} cannot be read: {error}")
        return pa.table({"_seq": pa.array([], pa.binary())})

    def finish(self) -> None:
        """Compares the rest of every table, and adds the differences to the report."""
        for key in self._files:
            self.of(key)  # also tables with files that the log does not know
        report = self._report
        report.tables_count = len(self.comparisons)
        for comparison in self.comparisons.values():
            found = comparison.finish()
            report.differences.add(found)
            report.before_log += comparison.before
            for example in found.examples:
                report.fault(f"{comparison.name}: {example}")
