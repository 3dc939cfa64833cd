"""The tables of one storage sink: finds and reads their data files, and compares each table with the changes that the log
expects.

A file counts once its directory's index names it or a later one. Files beyond the index are left over from a write that
never finished; consumers do not read them, and neither does this comparison.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from penstock.encode.format import FileFormat
from penstock.log.position import Seq
from penstock.operations.verify.report import SinkReport
from penstock.operations.verify.table_comparison import TableComparison

_DATA_FILE = re.compile(r"^CDC(?:_[0-9a-f]{32}_)?(\d+)\.[a-z]+$")
_INDEX_DIRECTORIES = ("meta", "_meta")
_INDEX_NAME = "CDC.index"


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """One table version on one date: every file that counts, in order; `faults` says which are missing."""

    schema: str
    table: str
    version: int
    date: str
    files: tuple[Path, ...]
    faults: tuple[str, ...] = field(default=())


def data_directories(root: Path) -> list[DataDirectory]:
    """Every data directory under the sink's root, in commit order for each table."""
    found = [_read(root, directory) for directory in _candidates(root)]
    return sorted(found, key=lambda d: (d.schema, d.table, d.version, d.date))


def _candidates(root: Path) -> Iterator[Path]:
    seen = set()
    for path in root.rglob("CDC*"):
        if path.name == _INDEX_NAME and path.parent.name in _INDEX_DIRECTORIES:
            seen.add(path.parent.parent)
        elif _DATA_FILE.match(path.name):
            seen.add(path.parent)
    yield from seen


def _read(root: Path, directory: Path) -> DataDirectory:
    parts = directory.relative_to(root).parts
    schema, table = unquote(parts[0]), unquote(parts[1])
    version = int(parts[2].removeprefix("version="))
    date = parts[3].removeprefix("date=") if len(parts) > 3 else ""
    numbered = {}
    for path in directory.iterdir():
        if match := _DATA_FILE.match(path.name):
            numbered[int(match.group(1))] = path
    index = next(
        (directory / d / _INDEX_NAME for d in _INDEX_DIRECTORIES if (directory / d / _INDEX_NAME).exists()), None
    )
    if index is None:
        return DataDirectory(schema, table, version, date, ())
    name = index.read_text(encoding="utf-8").removesuffix("\n")
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

    def __init__(self, root: Path, fmt: FileFormat, report: SinkReport, first: Seq | None) -> None:
        self._format = fmt
        self._first = first
        self._report = report
        self._files: dict[tuple[str, str], list[Path]] = {}
        self.comparisons: dict[tuple[str, str], TableComparison] = {}
        for directory in data_directories(root):
            for fault in directory.faults:
                report.fault(fault)
            self._files.setdefault((directory.schema, directory.table), []).extend(directory.files)

    def of(self, key: tuple[str, str]) -> TableComparison:
        if key not in self.comparisons:
            files = self._files.get(key, [])
            self.comparisons[key] = TableComparison(".".join(key), iter(files), self._read, self._first)
        return self.comparisons[key]

    def _read(self, path: Path) -> pa.Table:
        try:
            return self._format.rows(path.read_bytes())
        except (pa.ArrowException, ValueError) as error:
            self._report.fault(f"{path} cannot be read: {error}")
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
