"""Is every change at the sinks, once, and right?

Two independent comparisons. *With the log*: every change that the log holds, decoded and encoded anew, against every row in
the files, matched by seq: finds what was lost, doubled or altered on the way. *With the source*: the rows that remain when
a sink's changes are applied, against what the source holds now, read without the binlog decoder: finds what was decoded
wrongly. Nothing is changed, and a running flow is not disturbed: what is still on its way is counted apart.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.delivery.settings import local_directory
from penstock.encode import FORMATS
from penstock.encode.format import FileFormat
from penstock.entries.decode import decode_entries
from penstock.errors import BadInput, PenstockError
from penstock.log import LogReader
from penstock.log.position import Seq
from penstock.operations.config.loading import Config
from penstock.operations.delivered import delivered_through
from penstock.operations.verify.log_history import read_history
from penstock.operations.verify.sink_files import data_directories
from penstock.operations.verify.source_truth import SourceTruth, source_truth
from penstock.operations.verify.table_comparison import TableComparison
from penstock.schema.changes import ChangeBatch
from penstock.schema.model import TableSchema
from penstock.sources.settings import Tables

_META_COLUMNS = ("_op", "_seq", "_commit_ts")
_FAULTS_MAX = 20


@dataclass(slots=True)
class SinkReport:
    """One sink against log and source. `faults` says in words what is wrong, at most twenty of them."""

    name: str
    tables_count: int = 0
    changes: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    unknown: int = 0
    pending: int = 0
    before_log: int = 0
    compared_with_source: int = 0
    source_equal: int = 0
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    equal: bool = False

    def fault(self, text: str) -> None:
        if len(self.faults) < _FAULTS_MAX:
            self.faults.append(text)


@dataclass(slots=True)
class VerifyReport:
    """What `penstock verify` found."""

    sinks: list[SinkReport]

    @property
    def equal(self) -> bool:
        return all(sink.equal for sink in self.sinks)

    def to_json(self) -> dict[str, Any]:
        return {"equal": self.equal, "sinks": [asdict(sink) for sink in self.sinks]}


def verify(config: Config, *, sink: str | None = None, with_source: bool = True) -> VerifyReport:
    """Compares every sink, or one. Raises only where nothing can be compared; a difference is in the report."""
    if sink is not None and sink not in config.sinks:
        raise BadInput(f"there is no sink {sink!r}", hint=f"the configuration has {', '.join(config.sinks)}")
    directory = config.state_dir / "log"
    if not directory.exists():
        raise BadInput(f"{directory} does not exist: nothing was captured yet", hint="penstock run starts the flow")
    reader = LogReader.open(directory)
    names = [sink] if sink is not None else list(config.sinks)
    return VerifyReport([_verify_sink(config, name, reader, with_source) for name in names])


def _verify_sink(config: Config, name: str, reader: LogReader, with_source: bool) -> SinkReport:
    settings = config.sinks[name]
    fmt = FORMATS[settings.format]
    report = SinkReport(name)
    filters = (config.source.tables, Tables(include=tuple(settings.only)))
    first = None if reader.complete else Seq(reader.first.ledger_id, max(0, reader.first.entry_id), 0, 0)
    comparisons = _Comparisons(local_directory(settings.url), fmt, report, first)
    history = read_history(reader)
    latest = {
        (table.schema, table.table): table
        for table in history.in_force
        if all(wanted.matches(table.schema, table.table) for wanted in filters)
    }
    through = delivered_through(config.state_dir, name, reader)
    end = history.complete_end
    for position_end, pending in ((min(through, end), False), (end, True)):
        start = reader.first if not pending else through
        if pending and through >= end:
            break
        entries = reader.read(reader.next(start) if pending else start, position_end)
        for item in decode_entries(entries, history.schemas):
            table = item.table
            if not all(wanted.matches(table.schema, table.table) for wanted in filters):
                continue
            latest[table.schema, table.table] = table
            if isinstance(item, ChangeBatch):
                comparisons.of(table).expect(_encoded(fmt, item), may_be_pending=pending)
    comparisons.finish()
    if first is not None:
        report.notes.append(
            f"the log was trimmed: {report.before_log:,} changes before {reader.first} were compared with the source alone"
        )
    if with_source:
        _compare_source(config, fmt, comparisons, latest, report)
    report.equal = not report.faults and not (report.lost or report.doubled or report.wrong or report.unknown)
    return report


class _Comparisons:
    """One comparison a table, made when its first change or file shows up."""

    def __init__(self, root: Path, fmt: FileFormat, report: SinkReport, first: Seq | None) -> None:
        self._format = fmt
        self._first = first
        self._report = report
        self._files: dict[tuple[str, str], list[Path]] = {}
        self.tables: dict[tuple[str, str], TableComparison] = {}
        for directory in data_directories(root):
            for fault in directory.faults:
                report.fault(fault)
            self._files.setdefault((directory.schema, directory.table), []).extend(directory.files)

    def of(self, table: TableSchema) -> TableComparison:
        return self._get((table.schema, table.table))

    def _get(self, key: tuple[str, str]) -> TableComparison:
        if key not in self.tables:
            files = self._files.get(key, [])
            self.tables[key] = TableComparison(".".join(key), iter(files), self._read, self._first)
        return self.tables[key]

    def _read(self, path: Path) -> pa.Table:
        try:
            return self._format.rows(path.read_bytes())
        except (pa.ArrowException, ValueError) as error:
            self._report.fault(f"{path} cannot be read: {error}")
            return pa.table({"_seq": pa.array([], pa.binary())})

    def finish(self) -> None:
        for key in self._files:
            self._get(key)  # files of a table that the log does not know
        report = self._report
        report.tables_count = len(self.tables)
        for comparison in self.tables.values():
            found = comparison.finish()
            report.changes += found.changes
            report.lost += found.lost
            report.doubled += found.doubled
            report.wrong += found.wrong
            report.unknown += found.unknown
            report.pending += found.pending
            report.before_log += comparison.before
            for example in found.examples:
                report.fault(f"{comparison.name}: {example}")


def _compare_source(
    config: Config,
    fmt: FileFormat,
    comparisons: _Comparisons,
    latest: dict[tuple[str, str], TableSchema],
    report: SinkReport,
) -> None:
    if report.pending:
        report.notes.append("not compared with the source: changes are still on their way")
        return
    try:
        truth = source_truth(config)
    except PenstockError as error:
        report.notes.append(f"not compared with the source: {error}")
        return
    if truth is None:
        report.notes.append(f"a source of type {config.source.type} has no tables to compare with")
        return
    with truth:
        for key, table in latest.items():
            if not table.dropped and table.columns and key in comparisons.tables:
                _compare_table(fmt, comparisons.tables[key].kept, table, truth, report)


def _compare_table(
    fmt: FileFormat, kept: list[pa.Table], table: TableSchema, truth: SourceTruth, report: SinkReport
) -> None:
    if not table.primary_key:
        report.notes.append(f"{table.name} has no primary key: compared with the log only")
        return
    names = [column.name for column in table.columns]
    keys = [names[i] for i in table.primary_key]
    want = _encoded(fmt, truth.rows(table)).select(names)
    have = _current(kept, names, keys, want.schema)
    report.compared_with_source += 1
    order: list[tuple[str, Literal["ascending", "descending"]]] = [(key, "ascending") for key in keys]
    want, have = want.sort_by(order), have.sort_by(order)
    if want.equals(have):
        report.source_equal += 1
        return
    report.fault(
        f"{table.name}: {have.num_rows:,} rows at the sink, {want.num_rows:,} at the source; {_first(want, have)}"
    )


def _first(want: pa.Table, have: pa.Table) -> str:
    """The first row that differs, in words."""
    for a, b in zip(want.to_pylist(), have.to_pylist(), strict=False):
        if a != b:
            different = {name: (b[name], a[name]) for name in a if a[name] != b[name]}
            return "first difference (sink, source): " + ", ".join(
                f"{n} {v[0]!r}, {v[1]!r}" for n, v in different.items()
            )
    return "the rows that both have are equal"


def _current(kept: list[pa.Table], names: list[str], keys: list[str], schema: pa.Schema) -> pa.Table:
    """What is left when the changes are applied in order: the last change of each key, unless it is a delete."""
    if not kept:
        return schema.empty_table()
    changes = pa.concat_tables(kept, promote_options="default")
    for name in names:
        if name not in changes.column_names:
            changes = changes.append_column(name, pa.nulls(changes.num_rows, schema.field(name).type))
    numbered = changes.select(keys).append_column("__n", pa.array(range(changes.num_rows), pa.int64()))
    last = numbered.group_by(keys).aggregate([("__n", "max")]).column("__n_max")
    rows = changes.take(last)
    rows = rows.filter(pc.not_equal(rows.column("_op"), pa.scalar("D")))
    return rows.select(names).cast(schema)


def _encoded(fmt: FileFormat, batch: ChangeBatch) -> pa.Table:
    return fmt.rows(fmt.assemble([fmt.encode(batch)]))
