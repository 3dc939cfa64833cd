"""What a read of `format("penstock")` gives, decided once, when the DataFrame is made: the columns, and up to where.

Everything here is without Spark. `resolve` runs where the DataFrame is made, `plan` where its tasks are, and `batches` in
each task. What travels between them is a `Resolved` and its `Piece`s: plain data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from penstock.delivery.settings import is_local, local_directory
from penstock.errors import BadInput, NotSupported
from penstock.log import LogReader
from penstock.schema.model import TableSchema
from penstock.spark.plan import PlannedRange
from penstock.spark.tables import json_rows
from penstock.spark.tables.current import WHOLE, CurrentTable, Share, can_be_shared
from penstock.spark.tables.history import History
from penstock.spark.tables.later_keys import later_keys
from penstock.spark.tables.log import (
    LogContent,
    check_same_log,
    current_rows,
    find_log,
    json_changes,
    plan_all,
    read_content,
    task_reader,
    typed_changes,
    version_at,
)
from penstock.spark.tables.options import Options
from penstock.spark.tables.rows import changes_schema, columns_schema, fitted, rows_of_file
from penstock.spark.tables.sink import DataFile, Sink
from penstock.spark.tables.streams.log_stream import first_offset

_PARTITIONS = 8  # of a read of changes at most, where the option does not say it
_BATCH_ROWS_MAX = 65_536
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Resolved:
    """`log`: the log's directory, None for a sink, and `log_uuid` the log that was there. `target`: JSON of the version whose columns the rows have, None for JSON
    rows. `checkpoint_ts` or `end`: up to where a batch read goes. `lineage`: of a table as it is now."""

    options: Options
    log: str | None
    target: str | None = None
    lineage: tuple[str, ...] = ()
    checkpoint_ts: int = 0
    content: LogContent | None = None
    log_uuid: str = ""

    def target_table(self) -> TableSchema | None:
        return None if self.target is None else TableSchema.from_json(self.target)

    def arrow_schema(self) -> pa.Schema:
        """The columns of the rows."""
        target = self.target_table()
        if target is None:
            return json_rows.SCHEMA
        return columns_schema(target) if self.options.view == "current" else changes_schema(target)


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads: files of a sink, each with its version, or a range of a log. Of a table as it is now: the share of
    its keys, or of its files; then `later` are the files after them, of which it needs the keys. `whole`: the files' rows above
    the checkpoint too."""

    files: tuple[DataFile, ...] = ()
    versions: tuple[str, ...] = ()
    planned: PlannedRange | None = None
    share: Share = WHOLE
    whole: bool = False
    later: tuple[DataFile, ...] = ()


# -- where the DataFrame is made ------------------------------------------------------------------------------------


def resolve(options: Options) -> Resolved:
    """For a batch read or a stream: Spark asks for the columns before it says which. Raises `BadInput` for a path or a
    table that is not there."""
    log = find_log(options.path)
    if log is None:
        return _resolve_sink(options)
    reader = LogReader.open(log)
    try:
        if options.view == "current":
            _check_whole(reader, options)
        begin = None if options.start == "earliest" and options.cursor is None else first_offset(reader, options)
        content = read_content(reader, begin)
        found = Resolved(options, str(log), content=replace(content, in_force=(), made=()), log_uuid=str(reader.uuid))
        if options.table is None:
            return found
        if options.columns_at != "newest":
            at = content.start if options.columns_at == "start" else options.columns_at
            return replace(found, target=version_at(reader, options.table, at).to_json())
        return _with_table(found, content.history(), options)
    finally:
        reader.close()


def _check_whole(reader: LogReader, options: Options) -> None:
    if options.start != "earliest" or options.columns_at != "newest":
        raise BadInput(
            'options startingPosition and columnsAt are for view "changes": a table is made of all its changes'
        )
    if not reader.complete:
        raise BadInput(
            f"the log was trimmed: it begins at {reader.first}, and older changes are not in it any more",
            hint='read view "current" from a sink\'s prefix',
        )


def check_batch(resolved: Resolved) -> None:
    """Raises `BadInput` for what only a stream can have."""
    if resolved.options.cursor is not None:
        raise BadInput("option cursor is for streams: a batch read acknowledges nothing", hint="spark.readStream")
    if resolved.log is None and resolved.options.start != "earliest":
        raise BadInput(
            "option startingPosition is for logs and for streams: a sink's prefix is read from its first file"
        )


def check_stream(resolved: Resolved) -> None:
    """Raises `BadInput` for what only a batch read, or only a log, can have."""
    if resolved.log is None and resolved.options.cursor is not None:
        raise BadInput(
            "option cursor is for logs: a sink keeps its files for every reader",
            hint="the checkpoint says how far a query is",
        )
    if resolved.options.view == "current":
        raise NotSupported('view "current" is a table, and no stream', hint='view "changes", or spark.read')


def _resolve_sink(options: Options) -> Resolved:
    if is_local(options.path):  # tasks may run in another directory
        options = replace(options, path=str(local_directory(options.path)))
    sink = Sink.open(options.path)
    if not isinstance(options.start, str) or options.columns_at != "newest":
        raise BadInput(
            "positions and the option columnsAt are for logs: a sink's files have no such positions",
            hint="startingPosition earliest or latest; columns are those of the newest version",
        )
    found = Resolved(options, None, checkpoint_ts=sink.checkpoint_ts)
    if options.table is None:
        return found
    if options.view == "changes":
        history = sink.history(options.table)
        if not history.versions:
            history = sink.history()  # for the names in the error
        return _with_table(found, history, options)
    _check_none_expired(sink)
    return _with_table(found, sink.history(), options)


def _check_none_expired(sink: Sink) -> None:
    """Asked where a DataFrame is made, and again where it is read: days may be between."""
    if sink.expired_before:
        raise BadInput(
            f"files before {sink.expired_before} have expired at {sink.url}: the table cannot be had from those that are left",
            hint='view "changes"',
        )


def _with_table(found: Resolved, history: History, options: Options) -> Resolved:
    assert options.table is not None
    name = history.find(options.table)
    if options.view == "changes":
        return replace(found, target=history.newest(name).to_json())
    lineage = history.lineage(name)
    return replace(found, target=lineage[-1].to_json(), lineage=tuple(table.to_json() for table in lineage))


# -- where its tasks are planned ------------------------------------------------------------------------------------


def plan(resolved: Resolved) -> list[Piece]:
    """The tasks of a batch read."""
    if resolved.log is None:
        return _plan_files(resolved)
    assert resolved.content is not None
    reader = LogReader.open(Path(resolved.log))
    try:
        check_same_log(reader, resolved.log_uuid)
        count = 1 if resolved.lineage else resolved.options.partitions or _PARTITIONS
        shares = _shares(resolved)
        ranges = plan_all(reader, resolved.content, count)
        return [Piece(planned=one, share=share) for one in ranges for share in shares]
    finally:
        reader.close()


def _shares(resolved: Resolved) -> list[Share]:
    count = resolved.options.partitions or 1
    if not resolved.lineage or not can_be_shared(map(TableSchema.from_json, resolved.lineage)):
        count = 1
    return [Share(number, count) for number in range(count)]


def _plan_files(resolved: Resolved) -> list[Piece]:
    sink = replace(Sink.open(resolved.options.path), checkpoint_ts=resolved.checkpoint_ts)
    if resolved.lineage:
        _check_none_expired(sink)
        lineage = [TableSchema.from_json(text) for text in resolved.lineage]
        order = {table.key: number for number, table in enumerate(lineage)}
        files = sink.files(wanted=lambda directory: directory[:3] in order)
        files.sort(key=lambda file: order[file[:3]])  # and within a version as they are
        shares = _shares(resolved)
        if not lineage[-1].primary_key:  # equal rows may come and go in any file
            return [Piece(tuple(files), share=share) for share in shares]
        parts = list(enumerate(_parts(files, len(shares))))
        return [Piece(tuple(part), later=tuple(chain(*(more for n, more in parts if n > at)))) for at, part in parts]
    files = sink.files(resolved.options.table)
    history = sink.history(resolved.options.table)
    if resolved.options.table is not None:
        name = history.find(resolved.options.table)
        files = [file for file in files if (file.schema, file.table) == name]
    known = {table.key: table.to_json() for tables in history.versions.values() for table in tables}
    return file_pieces([(file, _version(known, file, sink)) for file in files], resolved.options)


def file_pieces(files: Sequence[tuple[DataFile, str]], options: Options, *, whole: bool = False) -> list[Piece]:
    """The tasks that read files, each with its version."""
    return [
        Piece(tuple(file for file, _ in part), tuple(version for _, version in part), whole=whole)
        for part in _parts(files, options.partitions or _PARTITIONS)
    ]


def _version(known: dict[tuple[str, str, int], str], file: DataFile, sink: Sink) -> str:
    found = known.get(file[:3])
    if found is None:
        raise BadInput(f"{sink.url}: there is no schema file for version {file.version} of {file.schema}.{file.table}")
    return found


def _parts(files: Sequence[_T], count: int) -> list[Sequence[_T]]:
    """At most so many runs of files, about equally long."""
    count = min(count, len(files))
    bounds = [len(files) * number // count for number in range(count + 1)] if count else []
    return [files[first:last] for first, last in pairwise(bounds)]


# -- in a task ------------------------------------------------------------------------------------------------------


def batches(resolved: Resolved, piece: Piece) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, in batches of exactly the declared columns."""
    schema = resolved.arrow_schema()
    for table in _tables(resolved, piece):
        if table.num_rows:
            yield from table.select(schema.names).cast(schema).to_batches(max_chunksize=_BATCH_ROWS_MAX)


def _tables(resolved: Resolved, piece: Piece) -> Iterator[pa.Table]:
    target = resolved.target_table()
    lineage = [TableSchema.from_json(text) for text in resolved.lineage]
    if piece.planned is not None:
        assert resolved.log is not None
        reader = task_reader(resolved.log, resolved.log_uuid)
        if lineage:
            yield current_rows(reader, piece.planned, lineage, piece.share)
        elif target is not None:
            yield from typed_changes(reader, piece.planned, target)
        else:
            yield from json_changes(reader, piece.planned)
        return
    if resolved.log is not None:
        return  # nothing is in the log
    sink = Sink.open(resolved.options.path)
    up_to = None if piece.whole else resolved.checkpoint_ts
    if lineage:
        yield _current_files(sink, piece, lineage, up_to)
        return
    for file, text in zip(piece.files, piece.versions, strict=True):
        version = TableSchema.from_json(text)
        rows = rows_of_file(sink, file, version, up_to)
        if target is not None:
            yield fitted(rows, version, target)
        else:
            for start in range(0, rows.num_rows, json_rows.ROWS_AT_ONCE):
                yield json_rows.json_of_rows(rows.slice(start, json_rows.ROWS_AT_ONCE), version)


def _current_files(sink: Sink, piece: Piece, lineage: Sequence[TableSchema], up_to: int | None) -> pa.Table:
    current = CurrentTable(lineage[0], piece.share)
    for version in lineage:
        files, later = ([one for one in some if one[:3] == version.key] for some in (piece.files, piece.later))
        current.take(version, (rows_of_file(sink, file, version, up_to) for file in files))
        current.take(version, (later_keys(sink, file, version, up_to) for file in later))
    return current.rows()
