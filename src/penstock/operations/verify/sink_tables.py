"""The tables of one sink: reads their files, and compares each with the changes that the log expects."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.encode.format import FileFormat
from penstock.log.position import Seq
from penstock.operations.verify.report import SinkReport
from penstock.operations.verify.sink_files import data_directories
from penstock.operations.verify.table_comparison import TableComparison


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
