"""The rows that remain when a sink's changes are applied, against the rows that the source holds now.

The source is read without the binlog decoder, so this comparison also finds what was decoded wrongly. Tables are compared one
after the other, each in parts by a hash of its key: memory does not grow with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.format import FileFormat
from penstock.errors import NotSupported, PenstockError
from penstock.files.private import unnamed_file
from penstock.operations.config.model import Config
from penstock.operations.verify.keyed_rows import KeyedRows, key_columns, pairs
from penstock.operations.verify.log_replay import LogReplay
from penstock.operations.verify.report import EXAMPLES_MAX, SinkReport, SourceDifferences, TableReport
from penstock.operations.verify.row_difference import different_rows, different_values
from penstock.operations.verify.sink_tables import SinkTables
from penstock.operations.verify.source_truth import SourceTruth, inserts, physical_type, source_truth
from penstock.rules.rules import Rules
from penstock.rules.wholes import aligned
from penstock.schema.changes import ChangeBatch
from penstock.schema.model import TableSchema
from penstock.schema.quoting import shell_word
from penstock.sources.position import SourcePosition

ROWS_BYTES_MAX = 128 << 20  # of one side of a table in memory

Places = npt.NDArray[np.int64]
Progress = Callable[[str, int, int], None]

_OWN = frozenset({"_op", "_seq", "_commit_ts"})  # what a row of a file has beside its columns
_HERE, _THERE = "here", "there"  # places of rows


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
        if not table.dropped and table.columns and replay.rules.wants(*key) and _is_compared(replay, key, tables)
    }
    wholes = {target for key in chosen if replay.rules.gathers(key) for target in [replay.rules.target(*key)]}
    try:
        with truth:
            for done, target in enumerate(sorted(wholes)):
                progress(f"{'.'.join(target)} with the source", done, len(wholes))
                compare_whole(config, fmt, tables, replay, report, target, truth)
                origins = " ".join(shell_word(part.name) for part in replay.parts(target))
                _tell(report, report.table(".".join(target)), origins, replay, truth.position)
            for done, (key, table) in enumerate(chosen.items()):
                if replay.rules.gathers(key):
                    continue
                progress(f"{table.name} with the source", done, len(chosen))
                seen = replay.rules.table(table)
                left_out = _left_out(replay, key, table, seen, report)
                if left_out is not None:
                    compared = _Comparison(config, fmt, [table], seen, left_out)
                    compared.run(tables, replay, truth, report.table(seen.name))
                _tell(report, report.table(seen.name), shell_word(table.name), replay, truth.position)
    except PenstockError as error:
        report.source_error = str(error)
        report.notes.append(f"not compared with the source: {error}")


def compare_whole(  # noqa: PLR0917
    config: Config,
    fmt: FileFormat,
    tables: SinkTables,
    replay: LogReplay,
    report: SinkReport,
    target: tuple[str, str],
    truth: SourceTruth,
) -> None:
    """Several tables of the source that are one at the sink: what it holds of all of them, against all of them."""
    found = report.table(".".join(target))
    parts = replay.parts(target)
    if not all(_is_compared(replay, (part.schema, part.table), tables) for part in parts):
        return
    if target in replay.left:
        found.note = f"{replay.left[target]}, and its rows stay: compared with the log only"
        return
    whole = replay.whole(target)
    for part in parts:
        if _left_out(replay, (part.schema, part.table), part, replay.rules.table(part), report) is None:
            found.note = f"{part.name}: {found.note}"
            return
    _Comparison(config, fmt, parts, whole, frozenset()).run(tables, replay, truth, found)
    if found.with_source is not None and found.with_source.collisions:
        report.fault(
            f"{found.name}: {found.with_source.collisions:,} of its keys are in more than one of its tables, and their rows "
            f"replace each other; keys of {', '.join(part.name for part in parts[:EXAMPLES_MAX])} must be apart"
        )


def _places(column: pa.ChunkedArray[Any]) -> Places:
    there: Any = pc.fill_null(column, pa.scalar(-1, pa.int64()))
    found: Places = there.to_numpy()
    return found


def _is_compared(replay: LogReplay, key: tuple[str, str], tables: SinkTables) -> bool:
    """Whether the sink has, or should have, all rows of the table: changes of it are there or in the log, or it has none."""
    target = replay.rules.target(*key)
    load = replay.loads.get(key)
    if replay.parked.keys() & {".".join(key), ".".join(target)} or (load is not None and not load.done):
        return False
    return target in tables.comparisons or replay.begins_here(key)


def _rows_at_sink(tables: SinkTables, replay: LogReplay, name: tuple[str, str]) -> Iterator[pa.Table]:
    """The changes of a table of the source, under all names that it has had at the sink, in their order."""
    names = replay.names_at_sink(name)
    for target, first, until in names:
        for rows in tables.rows(target):
            if len(names) == 1 and not any(first):
                yield rows
                continue
            seq = rows.column("_seq").cast(pa.binary())
            yield rows.filter(
                pc.and_(
                    pc.greater_equal(seq, pa.scalar(first, pa.binary())), pc.less(seq, pa.scalar(until, pa.binary()))
                )
            )


def _from(rows: pa.Table, seq: bytes) -> pa.Table:
    """The changes from `seq` on."""
    if not seq:
        return rows
    return rows.filter(pc.greater_equal(rows.column("_seq").cast(pa.binary()), pa.scalar(seq, pa.binary())))


def _name(table: TableSchema) -> tuple[str, str]:
    return table.schema, table.table


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
    if any(column.name.lower() in _OWN for column in seen.columns):
        found.note = "has a column with a name that the comparison uses itself: compared with the log only"
        return None
    changed = replay.changed_since(key, table)
    if changed is not None:
        found.note = f"its settings changed at {changed}, and rows from before it are there: compared with the log only"
        return None
    unclear = replay.lineage.unclear(key)
    if unclear is None:
        return frozenset()
    keys = {table.columns[i].name.lower() for i in table.primary_key}
    there = sorted(column.name for column in table.columns if column.name.lower() in unclear.columns)
    shaped = seen is not table  # by rules, which may make other columns of those that are not clear
    if shaped or not unclear.columns or keys & unclear.columns:
        found.note = f"{unclear.reason}: compared with the log only"
        return None
    found.note = f"{unclear.reason}: {', '.join(there)} compared with the log only"
    return unclear.columns


def _tell(
    report: SinkReport, table: TableReport, origin: str, replay: LogReplay, position: SourcePosition | None
) -> None:
    """`origin`: the table's name at the source, as a word of a command;, which is at `position`."""
    if table.note:
        report.notes.append(f"{table.name}: {table.note}")
    found = table.with_source
    if found is None:
        return
    # The source may have changes that were not compared, which may well be the difference.
    ahead = (not found.equal or found.before_log > 0) and replay.lacks(position)
    if found.before_log and replay.complete and not ahead:
        report.notes.append(
            f"{table.name}: {found.before_log:,} rows of the source were there before the log began, and did not change since: "
            f"penstock backfill {origin} brings them"
        )
    elif found.before_log and not ahead:
        report.hold(
            f"{table.name}: {found.before_log:,} rows of the source are not at the sink. They were there before the log began, or "
            f"their changes are lost and trimmed from the log: penstock backfill {origin} brings them"
        )
    if found.equal and not ahead:
        return
    if ahead:
        report.hold(
            f"{table.name}: the source has changes that were not in the log when it was compared, and differs; verify again "
            "once they are delivered"
        )
        return
    report.fault(
        f"{table.name}: {found.rows_at_sink:,} rows at the sink, {found.rows_at_source:,} at the source; "
        f"{found.only_at_source:,} missing, {found.only_at_sink:,} too many, {found.different:,} different"
    )
    for key in found.keys:
        report.fault(f"{table.name}: {key}")


class _Comparison:
    """A table of the sink, without the columns that cannot be compared, and those of the source that it is made of."""

    def __init__(
        self, config: Config, fmt: FileFormat, origins: list[TableSchema], table: TableSchema, left_out: frozenset[str]
    ) -> None:
        self._format = fmt
        self._origins = origins
        self._table = table
        self._names = [column.name for column in table.columns if column.name.lower() not in left_out]
        self._keys = [table.columns[i].name for i in table.primary_key]
        self._directory = config.state_dir
        self._in_part = False  # rows of the source may be no change of the log
        self._ended = Event()  # nobody waits for more rows of the source: the sink's cannot be read, or Ctrl-C
        self._found = SourceDifferences()

    def run(self, tables: SinkTables, replay: LogReplay, truth: SourceTruth, report: TableReport) -> None:
        sink, source = self._rows(), self._rows()
        rules = replay.rules
        gathered = rules.gathers(_name(self._origins[0]))
        self._in_part = truth.had_rows and not all(replay.has_all_rows(_name(origin)) for origin in self._origins)
        try:
            schema = self._schema()
            # Kernels, and the server while it answers, leave Python's lock to the other side.
            with ThreadPoolExecutor(1, "source") as beside:
                reading = beside.submit(self._read_source, source, truth, rules, schema)
                try:
                    for rows in self._at_sink(tables, replay, gathered=gathered):
                        if rows.num_rows:  # what is left of none may have types of a table that is gone
                            sink.add(self._keyed(self._as_now(rows, schema)))
                    read = reading.result()
                finally:
                    self._ended.set()
            for have, want in pairs(sink, source):
                self._compare(have, want, schema)
            if gathered:
                self._found.collisions = read - self._found.rows_at_source
            elif self._found.rows_at_source < read:
                raise NotSupported("in this format some of its keys are the same")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, NotSupported) as error:
            # A column's type was changed: values before it are not those of now.
            report.note = f"compared with the log only: {error}"
            return
        finally:
            sink.close()
            source.close()
        report.with_source = self._found

    def _read_source(self, source: KeyedRows, truth: SourceTruth, rules: Rules, schema: pa.Schema) -> int:
        """Adds the rows that the source holds, and says how many they are."""
        read = 0
        for origin in self._origins:
            for chunk in truth.chunks(origin):
                if self._ended.is_set():
                    return read
                if rules.gathers(_name(origin)):
                    images, _, _ = rules.images(chunk)
                    seen = aligned(images, rules.table(origin).columns, self._table).batch(self._table)
                else:
                    seen, _ = rules.rows(chunk)
                read += len(seen)
                source.add(self._keyed(self._format.rows_of(seen).select(self._names).cast(schema)))
        return read

    def _at_sink(self, tables: SinkTables, replay: LogReplay, *, gathered: bool) -> Iterator[pa.Table]:
        """The changes that made the table what it is, in their order."""
        key = _name(self._origins[0])
        if gathered:
            yield from tables.rows(_name(self._table))
            return
        for rows in replay.lineage.rows(key, lambda name: _rows_at_sink(tables, replay, name)):
            yield _from(rows, replay.rows_from(key))

    def _keyed(self, rows: pa.Table) -> pa.Table:
        """The rows themselves, each of which can be told from the others."""
        for key in self._keys:
            if rows.column(key).null_count:
                raise NotSupported(f"the format has no value for some of its keys ({key})")
        return rows

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
        if self._in_part:
            changed = self._row_of_each(want, changes if changes is not None else have) >= 0
            found.before_log += int((~changed).sum())
            want = want.filter(pa.array(changed))
        at_sink = self._row_of_each(want, have)
        both = at_sink >= 0
        at_source = np.zeros(have.num_rows, np.bool_)
        at_source[at_sink[both]] = True
        only_at_sink, only_at_source = np.flatnonzero(~at_source), np.flatnonzero(~both)
        found.only_at_sink += len(only_at_sink)
        found.only_at_source += len(only_at_source)
        for key in self._key_texts(have, only_at_sink):
            found.key(f"{key} is not at the source")
        for key in self._key_texts(want, only_at_source):
            found.key(f"{key} is not at the sink")
        have, want = have.take(at_sink[both]), want.filter(pa.array(both))
        different = np.flatnonzero(different_rows(want, have, self._names))
        found.different += len(different)
        self._show(want.take(different[:EXAMPLES_MAX]), have.take(different[:EXAMPLES_MAX]))

    def _row_of_each(self, rows: pa.Table, others: pa.Table) -> Places:
        """For each of the rows, in their order, the one of the others that has its key; -1 where there is none."""
        here, there = pa.array(np.arange(rows.num_rows)), pa.array(np.arange(others.num_rows))
        sides = [
            key_columns(rows, self._keys)
            .append_column(_HERE, here)
            .append_column(_THERE, pa.nulls(rows.num_rows, pa.int64())),
            key_columns(others, self._keys)
            .append_column(_HERE, pa.nulls(others.num_rows, pa.int64()))
            .append_column(_THERE, there),
        ]
        both = pa.concat_tables(sides)
        found = both.group_by(both.column_names[:-2]).aggregate([(_HERE, "max"), (_THERE, "max")])
        at, other = _places(found.column(f"{_HERE}_max")), _places(found.column(f"{_THERE}_max"))
        made = np.full(rows.num_rows, -1)
        made[at[at >= 0]] = other[at >= 0]  # Arrow's groups come in any order
        return made

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
