"""What must be at a sink beside the rows in its files: the schema file of each version that has some, and of each statement,
the dead letter of each row that the format refuses, and the files that the flow has recorded as written.

Readers know rows, and what a TRUNCATE or DROP took, by schema files only; and of rows whose entries were trimmed from the
log, what was recorded is all that tells that they must be there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from penstock.changefeed.facts import DispatcherFacts
from penstock.delivery.storage.layout import DEAD_LETTERS, Layout, directory_of
from penstock.log.position import Seq
from penstock.objects import ObjectStore
from penstock.operations.verify.report import SinkReport
from penstock.operations.verify.sink_files import DataDirectory, SinkFiles
from penstock.schema.model import TableSchema
from penstock.schema.schema_file import schema_file

_SHOWN_MAX = 120  # characters of a statement
_COMPARED = ("Table", "Schema", "TableVersion", "TableColumns", "TableColumnsTotal")  # not the statement, nor its kind


class Companions:
    """`found`: what lies at the sink. `expired_before`: the first day whose files are all there."""

    def __init__(self, objects: ObjectStore, layout: Layout, found: SinkFiles, report: SinkReport, expired_before: str):
        self._objects = objects
        self._layout = layout
        self._found = found
        self._report = report
        self._expired_before = expired_before
        self._checked: set[tuple[str, int]] = set()
        self._with_files = {_version(one) for one in found.directories if one.files}

    def check_version(self, table: TableSchema) -> None:
        """The schema file of a version whose rows the log has, if it has files."""
        if self._version_of(table) in self._with_files:
            self._check(table, "readers cannot read its rows")

    def check_statement(self, told: TableSchema) -> None:
        """The schema file of a version that a statement made, also if no row came after it."""
        self._check(told, f"readers are not told of {told.query[:_SHOWN_MAX]!r}" if told.query else "readers need it")

    def _check(self, table: TableSchema, why: str) -> None:
        version = self._version_of(table)
        if version in self._checked:
            return
        self._checked.add(version)
        name, content = schema_file(table)
        directory = self._layout.schema_directory(table.schema, table.table)
        path = f"{directory}/{name}"
        there = self._objects.read(path)
        if there is None:
            others = [one.rpartition("/")[2] for one in self._found.schemas.get(version, ())]
            what = f"there is {others[0]} instead" if others else why
            called = table.name if table.table else f"database {table.schema}"
            self._report.fault(f"{called}: the schema file {name} is missing; {what}")
        elif _told(there.data) != _told(content):
            self._report.fault(f"{path} tells other columns than the rows have")

    def _version_of(self, table: TableSchema) -> tuple[str, int]:
        return self._layout.table_directory(table.schema, table.table), table.version

    def check_others(self) -> None:
        """That the versions whose rows the log does not have any more have a schema file. After all other checks."""
        for directory in self._found.directories:
            version = _version(directory)
            if directory.date < self._expired_before or version in self._checked or version not in self._with_files:
                continue
            self._checked.add(version)
            where = f"{version[0]}/{self._layout.meta}"
            if version not in self._found.schemas and not any(
                name.startswith(f"{where}/schema_{version[1]}_") for name in self._objects.list(where)
            ):
                self._report.fault(f"{where} has no schema file of version {version[1]}; readers cannot read its rows")

    def check_dead_letter(self, table: TableSchema, seq: Seq) -> None:
        where = f"{DEAD_LETTERS}/{self._layout.table_directory(table.schema, table.table)}"
        name = f"{where}/{str(seq).replace(':', '-')}.json"
        if name not in self._found.dead_letters and self._objects.size(name) is None:
            self._report.fault(
                f"{table.name}: seq {seq}, which the format refuses, is not among the dead letters ({name})"
            )

    def check_recorded(self, facts: Iterable[DispatcherFacts]) -> None:
        """That the last file of each table is there, and as many files as were written. `facts` are older than `found`."""
        files: dict[tuple[str, str], set[str]] = {}
        for directory in self._found.directories:
            files.setdefault((directory.schema, directory.table), set()).update(directory.files)
        for one in facts:
            there = files.get((one.schema, one.table), set())
            if one.last_path is None or _date(one.last_path, self._layout) < self._expired_before:
                continue
            if one.last_path not in there:
                self._report.fault(
                    f"{one.schema}.{one.table}: {one.last_path} was written, and is not there, or its index does not name it"
                )
            elif len(there) < one.files and not self._expired_before:
                self._report.fault(
                    f"{one.schema}.{one.table}: {one.files:,} files were written, and {len(there):,} are there"
                )


def _version(directory: DataDirectory) -> tuple[str, int]:
    return directory.path.rsplit("/", 2)[0], directory.version


def _date(path: str, layout: Layout) -> str:
    return directory_of(path).rpartition("/")[2].removeprefix(layout.date_prefix)


def _told(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
        return {name: value[name] for name in _COMPARED}
    except (ValueError, KeyError, TypeError):
        return None
