"""The rows that remain when a sink's changes are applied, against the rows that the source holds now.

The source is read without the binlog decoder, so this comparison also finds what was decoded wrongly. Tables are compared one
after the other, each in parts by a hash of its key: memory does not grow with the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.format import FileFormat
from penstock.errors import NotSupported, PenstockError
from penstock.files.private import unnamed_file
from penstock.operations.config.model import Config
from penstock.operations.verify.keyed_rows import KeyedRows, pairs
from penstock.operations.verify.log_replay import LogReplay
from penstock.operations.verify.report import EXAMPLES_MAX, SinkReport, SourceDifferences, TableReport
from penstock.operations.verify.row_difference import different_rows, different_values
from penstock.operations.verify.sink_tables import SinkTables
from penstock.operations.verify.source_truth import SourceTruth, inserts, physical_type, source_truth
from penstock.schema.changes import ChangeBatch
from penstock.schema.model import TableSchema

ROWS_BYTES_MAX = 128 << 20  # of one side of a table in memory
_STATEMENT_MAX = 120

Places = npt.NDArray[np.int64]
Progress = Callable[[str, int, int], None]

_SINK, _SOURCE = "at the sink", "at the source"  # names of columns, which no table has


def compare_with_source(
    config: Config,
    fmt: FileFormat,
    tables: SinkTables,
    replay: LogReplay,
    report: SinkReport,
    *,
    progress: Progress = lambda _what, _done, _all: None,
) -> None:
    """Compares every table that the log has at its end and the sink holds, or notes why that is not possible."""
    if report.differences.pending:
        report.notes.append("not compared with the source: not everything is delivered yet")
        return
    truth = source_truth(config)
    if truth is None:
        report.notes.append(f"a source of type {config.source.type} has no tables to compare with")
        return
    chosen = {
        key: table
        for key, table in replay.latest.items()
        if not table.dropped and table.columns and _is_compared(replay, key, tables)
    }
    try:
        with truth:
            for done, (key, table) in enumerate(chosen.items()):
                progress(f"{table.name} with the source", done, len(chosen))
                seen = replay.rules.table(table)
                left_out = _left_out(replay, key, table, seen, report)
                if left_out is not None:
                    compared = _Comparison(config, fmt, table, seen, left_out)
                    compared.run(tables, replay, truth, report.table(seen.name))
                _tell(report, report.table(seen.name), replay)
    except PenstockError as error:
        report.source_error = str(error)
        report.notes.append(f"not compared with the source: {error}")


def _places(column: pa.ChunkedArray[Any]) -> Places:
    there: Any = pc.fill_null(column, pa.scalar(-1, pa.int64()))
    found: Places = there.to_numpy()
    return found


def _is_compared(replay: LogReplay, key: tuple[str, str], tables: SinkTables) -> bool:
    """Whether the sink has files of the table, and all of its rows."""
    target = replay.rules.target(*key)
    return target in tables.comparisons and not replay.parked.keys() & {".".join(key), ".".join(target)}


def _no_rows(table: TableSchema) -> ChangeBatch:
    return inserts(table, [pa.array([], physical_type(column)) for column in table.columns])


def _left_out(
    replay: LogReplay, key: tuple[str, str], table: TableSchema, seen: TableSchema, report: SinkReport
) -> frozenset[str] | None:
    """The columns that cannot be compared, in lower case; None if the whole table cannot be. `seen`: the table as the sink
    sees it."""
    found = report.table(seen.name)
    if not table.primary_key:
        found.note = "has no primary key: compared with the log only"
        return None
    unclear = replay.lineage.unclear(key)
    if unclear is None:
        return frozenset()
    keys = {table.columns[i].name.lower() for i in table.primary_key}
    there = sorted(column.name for column in table.columns if column.name.lower() in unclear.columns)
    what = f"{unclear.statement[:_STATEMENT_MAX]!r} changed rows without row events"
    shaped = seen is not table  # by rules, which may make other columns of those that are not clear
    if shaped or not unclear.columns or keys & unclear.columns:
        found.note = f"{what}: compared with the log only"
        return None
    found.note = f"{what}: {', '.join(there)} compared with the log only"
    return unclear.columns


def _tell(report: SinkReport, table: TableReport, replay: LogReplay) -> None:
    if table.note:
        report.notes.append(f"{table.name}: {table.note}")
    found = table.with_source
    if found is None or found.equal:
        return
    if replay.has_grown():
        report.hold(f"{table.name}: the source went on while it was compared, and differs now; verify again")
        return
    report.fault(
        f"{table.name}: {found.rows_at_sink:,} rows at the sink, {found.rows_at_source:,} at the source; "
        f"{found.only_at_source:,} missing, {found.only_at_sink:,} too many, {found.different:,} different"
    )
    for key in found.keys:
        report.fault(f"{table.name}: {key}")


class _Comparison:
    """One table of the source, `origin`, as the sink sees it, without the columns that cannot be compared."""

    def __init__(
        self, config: Config, fmt: FileFormat, origin: TableSchema, table: TableSchema, left_out: frozenset[str]
    ) -> None:
        self._format = fmt
        self._origin = origin
        self._table = table
        self._names = [column.name for column in table.columns if column.name.lower() not in left_out]
        self._keys = [table.columns[i].name for i in table.primary_key]
        self._directory = config.state_dir
        self._found = SourceDifferences()

    def run(self, tables: SinkTables, replay: LogReplay, truth: SourceTruth, report: TableReport) -> None:
        sink, source = self._rows(), self._rows()
        key = (self._origin.schema, self._origin.table)
        rules = replay.rules
        try:
            schema = self._schema()
            for rows in replay.lineage.rows(key, lambda name: tables.rows(rules.target(*name))):
                sink.add(self._as_now(rows, schema))
            for chunk in truth.chunks(self._origin):
                seen, _ = rules.rows(chunk)
                source.add(self._format.rows_of(seen).select(self._names).cast(schema))
            for have, want in pairs(sink, source):
                self._compare(have, want, schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, NotSupported) as error:
            # A column's type was changed: values before it are not those of now.
            report.note = f"compared with the log only: {error}"
            return
        finally:
            sink.close()
            source.close()
        report.with_source = self._found

    def _rows(self) -> KeyedRows:
        return KeyedRows(self._keys, lambda: unnamed_file(self._directory), ROWS_BYTES_MAX)

    def _schema(self) -> pa.Schema:
        """The types that the format gives the columns as they are now; text where it tells none."""
        known = self._format.rows_of(_no_rows(self._table)).schema
        return pa.schema(
            [(name, known.field(name).type if name in known.names else pa.string()) for name in self._names]
        )

    def _as_now(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Changes with the columns of now, and their operation."""
        there = {name.lower(): name for name in rows.column_names}
        columns: list[Any] = []
        for name in self._names:
            found = there.get(name.lower())
            kind = schema.field(name).type
            columns.append(rows.column(found).cast(kind) if found is not None else pa.nulls(rows.num_rows, kind))
        return pa.table([*columns, rows.column("_op").cast(pa.string())], names=[*self._names, "_op"])

    def _compare(self, changes: pa.Table | None, want: pa.Table | None, schema: pa.Schema) -> None:
        """The rows of a part: the last change of each key, unless it is a delete, is the row."""
        have = schema.empty_table()
        if changes is not None:
            have = changes.filter(pc.not_equal(changes.column("_op"), pa.scalar("D"))).select(self._names)
        want = want if want is not None else schema.empty_table()
        found = self._found
        found.rows_at_sink += have.num_rows
        found.rows_at_source += want.num_rows
        at_sink, at_source = self._matched(have, want)
        only_at_sink, only_at_source = at_sink[at_source < 0], at_source[at_sink < 0]
        found.only_at_sink += len(only_at_sink)
        found.only_at_source += len(only_at_source)
        for key in self._key_texts(have, only_at_sink):
            found.key(f"{key} is not at the source")
        for key in self._key_texts(want, only_at_source):
            found.key(f"{key} is not at the sink")
        both = (at_sink >= 0) & (at_source >= 0)
        have, want = have.take(at_sink[both]), want.take(at_source[both])
        different = np.flatnonzero(different_rows(want, have, self._names))
        found.different += len(different)
        self._show(want.take(different[:EXAMPLES_MAX]), have.take(different[:EXAMPLES_MAX]))

    def _matched(self, have: pa.Table, want: pa.Table) -> tuple[Places, Places]:
        """For each key that one of them has: its row in both, -1 where there is none."""
        here, there = pa.array(np.arange(have.num_rows)), pa.array(np.arange(want.num_rows))
        sides = [
            have.select(self._keys)
            .append_column(_SINK, here)
            .append_column(_SOURCE, pa.nulls(have.num_rows, pa.int64())),
            want.select(self._keys)
            .append_column(_SINK, pa.nulls(want.num_rows, pa.int64()))
            .append_column(_SOURCE, there),
        ]
        found = pa.concat_tables(sides).group_by(self._keys).aggregate([(_SINK, "max"), (_SOURCE, "max")])
        return _places(found.column(f"{_SINK}_max")), _places(found.column(f"{_SOURCE}_max"))

    def _show(self, want: pa.Table, have: pa.Table) -> None:
        """A few rows that differ, in words."""
        keys = self._key_texts(want, np.arange(want.num_rows))
        differing = {name: different_values(want, have, name) for name in self._names}
        for row, key in enumerate(keys):
            texts = [
                f"{name} {have.column(name)[row].as_py()!r} at the sink, {want.column(name)[row].as_py()!r} at the source"
                for name in self._names
                if differing[name][row]
            ]
            self._found.key(f"{key}: {'; '.join(texts)}")

    def _key_texts(self, rows: pa.Table, places: Places) -> list[str]:
        some = rows.select(self._keys).take(places[:EXAMPLES_MAX]).to_pylist()
        return [", ".join(f"{name} = {value!r}" for name, value in row.items()) for row in some]
