"""The rows that remain when a sink's changes are applied, against the rows that the source holds now.

The source is read without the binlog decoder, so this comparison also finds what was decoded wrongly.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.format import FileFormat
from penstock.errors import PenstockError
from penstock.operations.config.model import Config
from penstock.operations.verify.log_replay import LogReplay
from penstock.operations.verify.report import SinkReport
from penstock.operations.verify.sink_tables import SinkTables
from penstock.operations.verify.source_truth import source_truth
from penstock.schema.changes import ChangeBatch


def compare_with_source(
    config: Config,
    fmt: FileFormat,
    tables: SinkTables,
    replay: LogReplay,
    report: SinkReport,
) -> None:
    """Compares every table that the log has at its end and the sink holds, or notes why that is not possible."""
    if report.differences.pending:
        report.notes.append("not compared with the source: not everything is delivered yet")
        return
    truth = source_truth(config)
    if truth is None:
        report.notes.append(f"a source of type {config.source.type} has no tables to compare with")
        return
    try:
        with truth:
            for key, table in replay.latest.items():
                if table.dropped or not table.columns or replay.rules.target(*key) not in tables.comparisons:
                    continue
                statement = replay.lineage.unclear(key)
                if statement is not None:
                    report.notes.append(
                        f"{table.name}: {statement[:120]!r} changed rows without row events: compared with the log only"
                    )
                    continue
                kept = replay.lineage.rows(key, lambda name: tables.kept(replay.rules.target(*name)))
                seen, stopped = replay.rules.rows(truth.rows(table))
                if stopped is None:
                    _compare_table(fmt, kept, seen, report)
    except PenstockError as error:
        report.source_error = str(error)
        report.notes.append(f"not compared with the source: {error}")


def _compare_table(fmt: FileFormat, kept: list[pa.Table], source: ChangeBatch, report: SinkReport) -> None:
    """`source`: the rows that the source holds now, as inserts, as the sink sees them."""
    table = source.table
    if not table.primary_key:
        report.notes.append(f"{table.name} has no primary key: compared with the log only")
        return
    names = [column.name for column in table.columns]
    keys = [names[i] for i in table.primary_key]
    want = fmt.rows(fmt.assemble([fmt.encode(source)])).select(names)
    try:
        have = _current_rows(kept, names, keys, want.schema)
    except pa.ArrowInvalid as error:  # a column's type was changed: values before it are not those of now
        report.notes.append(f"{table.name}: compared with the log only: {error}")
        return
    report.compared_with_source += 1
    order: list[tuple[str, Literal["ascending", "descending"]]] = [(key, "ascending") for key in keys]
    want, have = want.sort_by(order), have.sort_by(order)
    if want.equals(have):
        report.source_equal += 1
        return
    report.fault(
        f"{table.name}: {have.num_rows:,} rows at the sink, {want.num_rows:,} at the source; {_first_difference(want, have)}"
    )


def _first_difference(want: pa.Table, have: pa.Table) -> str:
    """The first row that differs, in words."""
    for a, b in zip(want.to_pylist(), have.to_pylist(), strict=False):
        if a != b:
            different = {name: (b[name], a[name]) for name in a if a[name] != b[name]}
            return "first difference (sink, source): " + ", ".join(
                f"{n} {v[0]!r}, {v[1]!r}" for n, v in different.items()
            )
    return "the rows that both have are equal"


def _current_rows(kept: list[pa.Table], names: list[str], keys: list[str], schema: pa.Schema) -> pa.Table:
    """The rows that remain when the changes are applied in order: the last change of each key, unless it is a
    delete."""
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
