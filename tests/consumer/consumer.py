"""Reads a whole sink, in the order in which the real consumer applies it, and rebuilds its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.consumer import canal_json, csv, parquet
from tests.consumer.canal_json import Row
from tests.consumer.csv import CsvSettings
from tests.consumer.layout import LAKE, DataDirectory, LayoutSettings, read_layout
from tests.consumer.schemas import Schema, read_schema
from tests.consumer.statements import Name, Statements, Table
from tests.consumer.violation import require, violated


@dataclass(frozen=True)
class ConsumerSettings:
    """As the real one is started. `complete`: the sink has every row of its tables from their first on, so an update of
    a row that is not there is an error. `protocol` None: only layout, index, schema and metadata are read."""

    protocol: str | None = "canal-json"
    layout: LayoutSettings = field(default_factory=LayoutSettings)
    terminator: str = "\r\n"
    csv: CsvSettings = field(default_factory=CsvSettings)
    complete: bool = False


def settings_for(
    protocol: str | None, *, settled: bool = True, complete: bool = False, **given: Any
) -> ConsumerSettings:
    layout = LayoutSettings(settled=settled)
    if protocol == "parquet":
        layout = replace(layout, **LAKE)
    elif protocol == "csv":
        layout = replace(layout, extension=".csv")
    return ConsumerSettings(protocol, layout, complete=complete, **given)


@dataclass
class Rebuilt:
    tables: dict[Name, Table]
    checkpoint_ts: int | None
    files: int
    changes: int


def read_sink(root: Path, settings: ConsumerSettings = ConsumerSettings()) -> Rebuilt:  # noqa: B008 - frozen
    """The tables that the sink's files give. Raises `Violation` for the first requirement that is not met."""
    checkpoint = _checkpoint(root)
    layout = read_layout(root, settings.layout)
    versions: dict[Name, dict[int, Schema]] = {}
    for path, schema, table, version, checksum in layout.schema_files:
        made = read_schema(path, schema, table, version, checksum)
        known = versions.setdefault((schema, table), {})
        require(version not in known, "schema-twice", path, "the consumer takes one of them and says nothing")
        known[version] = made
    for directory in layout.directories:
        own = versions.get((directory.schema, directory.table), {})
        require(directory.version in own, "schema-missing", directory.path, f"no schema of {directory.version}")
        if checkpoint is not None and settings.layout.settled and directory.files:
            require(directory.version <= checkpoint, "checkpoint", directory.path, f"above checkpoint-ts {checkpoint}")
    made = Statements()
    names = {(d.schema, d.table) for d in layout.directories} | set(versions)
    for version in sorted({version for known in versions.values() for version in known}):
        now = [known[version] for known in versions.values() if version in known]
        # The real one runs all statements of a version before its rows. A file without a statement adds nothing to run.
        for schema in sorted(now, key=lambda s: (bool(s.table), not s.query, s.schema, s.table)):
            made.run(schema)
        for directory in sorted(layout.directories, key=lambda d: (d.partition, d.date, d.schema, d.table)):
            if directory.version == version:
                _read_directory(made, directory, versions, settings)
    files = sum(len(directory.files) for directory in layout.directories)
    tables = {name: table for name, table in made.tables.items() if name in names}
    return Rebuilt(tables, checkpoint, files, sum(table.changes for table in tables.values()))


def _read_directory(
    made: Statements, directory: DataDirectory, versions: dict[Name, dict[int, Schema]], settings: ConsumerSettings
) -> None:
    """Applies the rows of a directory."""
    name = (directory.schema, directory.table)
    known = versions[name]
    after = min((version for version in known if version > directory.version), default=None)
    require(name in made.tables, "runs", directory.path, "rows of a table that no statement made, or that is gone")
    table = made.tables[name]
    for path in directory.files:
        for row in _rows(path, known[directory.version], settings):
            _check_times(table, row, directory.version, after, settings)
            _apply(table, row, settings)


def _checkpoint(root: Path) -> int | None:
    path = root / "metadata"
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_bytes())["checkpoint-ts"]
    except (ValueError, KeyError, TypeError) as error:
        violated("metadata", path, repr(error))
    require(type(value) is int and value >= 0, "metadata", path, repr(value))
    return int(value)


def _rows(path: Path, schema: Schema, settings: ConsumerSettings) -> Iterator[Row]:
    if settings.protocol == "canal-json":
        return canal_json.read_rows(path, schema, settings.terminator)
    if settings.protocol == "csv":
        return csv.read_rows(path, schema, settings.csv)
    return parquet.read_rows(path, schema) if settings.protocol == "parquet" else iter(())


def _check_times(table: Table, row: Row, version: int, after: int | None, settings: ConsumerSettings) -> None:
    require(row.commit_ts >= table.high, "order", row.where, f"{row.commit_ts} after {table.high}")
    table.high = row.commit_ts
    if settings.protocol == "canal-json" or (settings.protocol == "csv" and settings.csv.include_commit_ts):
        require(row.commit_ts >= version, "version-range", row.where, f"{row.commit_ts} before its version {version}")
        require(after is None or row.commit_ts < after, "version-range", row.where, f"{row.commit_ts} after {after}")


def _apply(table: Table, row: Row, settings: ConsumerSettings) -> None:
    table.changes += 1
    key, old = table.key_of(row.values), table.key_of(row.before or row.values)
    if settings.complete:
        if row.op == "I":
            twice = key in table.rows and bool(table.schema.key)
            require(not twice, "row-twice", row.where, f"{key} is there already")
        else:
            require(old in table.rows, "row-twice", row.where, f"{old} is not there")
    before = table.rows.get(old, {})
    if row.op != "I" and old in table.rows:
        table.counts[old] = table.counts.get(old, 1) - 1
        gone = row.op == "D" or old != key or not table.schema.key
        if gone and (table.schema.key or not table.counts[old]):
            del table.rows[old]
    if row.op != "D":
        table.rows[key] = {**before, **row.values} if row.op == "U" else dict(row.values)
        table.counts[key] = 1 if table.schema.key else table.counts.get(key, 0) + 1
