"""What a sink has beyond its point: how many changes of each table, which is the last, and which statements come after it.

Only files that an index names count. One beyond it is left over from a write that never finished: no reader of the index
has seen it, and its rows are delivered again. Two of them, or one with rows of before the point, say that the index is lost: nothing
is deleted then. Directories of days before the point are not looked at: nothing is written there any more, and files may have expired.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.changefeed.recovery_point import RecoveryPoint
from penstock.commit_ts import COUNTER_BITS
from penstock.delivery.storage.expiry import expired_before
from penstock.delivery.storage.layout import CONTROL_DIRECTORY, Layout, date_of, file_number
from penstock.encode.format import FileFormat
from penstock.errors import Corruption
from penstock.objects import ObjectStore
from penstock.schema.changes import SEQ_DTYPE
from penstock.schema.model import DdlType
from penstock.schema.schema_file import table_of_schema_file

Name = tuple[str, str]

_DATA_FILE = re.compile(r"CDC(\d+)\.[a-z]+")
_SCHEMA_FILE = re.compile(r"schema_(\d+)_\d+\.json")
_NOT_VALUES = ("_seq", "_commit_ts")


class Statement(NamedTuple):
    """A schema file: what its readers are told at this version."""

    version: int
    query: str
    kind: int


@dataclass(slots=True)
class TableAtSink:
    """`changes`: of the source's stream, beyond the point, in the format's own lines where it has no seq. `loaded`: rows of
    loads. `last`: the values of the last change, `version`: the table's where it is. `untold`: whether rows are beyond the
    point is not to be told."""

    changes: int = 0
    loaded: int = 0
    last: dict[str, Any] | None = None
    version: int = 0
    statements: list[Statement] = field(default_factory=list)
    untold: bool = False


@dataclass(slots=True)
class Contents:
    """`newest`: the largest commit_ts and version, `newest_ledger`: that of the largest seq, beyond the point; `leftovers`:
    files that no index names."""

    tables: dict[Name, TableAtSink] = field(default_factory=dict)
    newest: int = 0
    newest_ledger: int = 0
    leftovers: list[str] = field(default_factory=list)

    @property
    def beyond(self) -> int:
        return sum(one.changes + len(one.statements) for one in self.tables.values())


class _Directory(NamedTuple):
    name: Name
    version: int
    date: str
    files: list[str]  # that count, in order


def read_contents(objects: ObjectStore, layout: Layout, fmt: FileFormat, point: RecoveryPoint) -> Contents:
    """Reads all names, and the files with changes beyond the point. Raises `Corruption` where one cannot be read."""
    commit_ts = point.commit_ts
    found = Contents(newest=commit_ts)
    directories, schemas = _walk(objects, layout, max(date_of(commit_ts), expired_before(objects)), found)
    for directory in directories:
        table = found.tables.setdefault(directory.name, TableAtSink())
        reading = _Reading(objects, fmt, point, table, found)
        if reading.read_directory(directory.files):
            table.version = directory.version
    for path in found.leftovers:
        if _has_rows_before(objects, fmt, point, path):
            raise _index_lost(objects, path)
    for path, version in schemas:
        found.newest = max(found.newest, version)
        if version <= commit_ts:
            continue
        content = objects.read(path)
        if content is None:
            raise Corruption(f"{objects.url}/{path} is gone", hint="restore the files of the sink, then start again")
        made = table_of_schema_file(content.data, f"{objects.url}/{path}")
        table = found.tables.setdefault((made.schema, made.table), TableAtSink())
        # What is before the last row is at the sink for sure; a shape that only rows told has no statement.
        if version > table.version and made.ddl_type is not DdlType.NONE:
            table.statements.append(Statement(version, made.query, int(made.ddl_type)))
    for table in found.tables.values():
        table.statements.sort()
    return found


def _has_rows_before(objects: ObjectStore, fmt: FileFormat, point: RecoveryPoint, path: str) -> bool:
    """Whether the file has rows that the sink had before the point: then an index has named it."""
    table = TableAtSink()
    try:
        before = _Reading(objects, fmt, point, table, Contents())._read_file(path)[1]
    except Corruption:
        return False  # half of a file
    return before and not table.untold


def _index_lost(objects: ObjectStore, path: str) -> Corruption:
    return Corruption(
        f"{objects.url}/{path}: the index of its directory does not name it, and must have: it is lost, or an older one",
        hint="restore the files of the sink, then start again; nothing was deleted",
    )


def _walk(
    objects: ObjectStore, layout: Layout, first_day: str, found: Contents
) -> tuple[list[_Directory], list[tuple[str, int]]]:
    version_and_date = re.compile(rf"{re.escape(layout.version_prefix)}(\d+)/{re.escape(layout.date_prefix)}([\d-]+)")
    numbered: dict[str, dict[int, str]] = {}
    indexes: dict[str, str] = {}
    schemas: list[tuple[str, int]] = []
    for path in objects.walk():
        directory, _, file = path.rpartition("/")
        if path.startswith(f"{CONTROL_DIRECTORY}/"):
            continue
        if match := _DATA_FILE.fullmatch(file):
            numbered.setdefault(directory, {})[int(match[1])] = path
        elif directory.rpartition("/")[2] == layout.meta and file == "CDC.index":
            indexes[directory.rpartition("/")[0]] = path
        elif match := _SCHEMA_FILE.fullmatch(file):
            schemas.append((path, int(match[1])))
    directories = []
    for directory, files in numbered.items():
        match = version_and_date.fullmatch("/".join(directory.split("/")[2:]))
        if match is None or match[2] < first_day:
            continue
        content = objects.read(indexes[directory]) if directory in indexes else None
        last = file_number(content.data.decode(errors="replace")) if content is not None else 0
        beyond = [path for number, path in sorted(files.items()) if number > last]
        if beyond and (len(beyond) > 1 or last + 1 not in files):
            raise _index_lost(objects, beyond[0])
        found.leftovers += beyond
        missing = next((number for number in range(1, last + 1) if number not in files), None)
        if missing is not None:
            raise Corruption(
                f"{objects.url}/{directory}: file {missing} of {last} is missing",
                hint="restore the files of the sink, then start again",
            )
        schema, table = (unquote(part) for part in directory.split("/")[:2])
        counted = [files[number] for number in range(1, last + 1)]
        directories.append(_Directory((schema, table), int(match[1]), match[2], counted))
    return sorted(directories, key=lambda one: (one.name, one.version, one.date)), schemas


@dataclass(frozen=True, slots=True)
class _Reading:
    """The files of one table, and what is told of them."""

    objects: ObjectStore
    format: FileFormat
    point: RecoveryPoint
    table: TableAtSink
    found: Contents

    def read_directory(self, files: list[str]) -> bool:
        """From the last file back to the first one that has nothing beyond: rows are in commit order. Whether one has."""
        any_beyond = False
        for path in reversed(files):
            changes, before, last = self._read_file(path)
            self.table.changes += changes
            if last is not None and not any_beyond:
                self.table.last, any_beyond = last, True
            if before:
                break
        return any_beyond

    def _read_file(self, path: str) -> tuple[int, bool, dict[str, Any] | None]:
        """How many changes of the stream are beyond, whether some row is not, and the values of the last one that is."""
        changes, before, last = 0, False, None
        seen: bytes = b""
        for piece in _pieces(self.objects, self.format, path):
            if "_seq" in piece.column_names:
                seqs = _seqs(piece)
                beyond = self._is_beyond(seqs)
                chunk = beyond & (seqs["event"] == 0)  # a row of the binlog comes after its transaction's first event
                stream = beyond & ~chunk
                self.table.loaded += int(np.count_nonzero(chunk))
                self.found.newest_ledger = max(self.found.newest_ledger, int(seqs["ledger"].max(initial=0)))
                raw = seqs[stream].view("S24")
                # A change of a key is two rows of one seq.
                changes += int(np.count_nonzero(raw[1:] != raw[:-1])) + int(len(raw) > 0 and raw[0] != seen)
                seen = bytes(raw[-1]) if len(raw) else seen
            elif "_commit_ts" in piece.column_names:
                stream = beyond = _commit_ts(piece) > np.uint64(self.point.commit_ts)
                changes += int(np.count_nonzero(stream))
            else:
                self.table.untold = True
                return 0, True, None
            before |= not beyond.all()
            if "_commit_ts" in piece.column_names:
                self.found.newest = max(self.found.newest, int(_commit_ts(piece).max(initial=0)))
            if stream.any():
                last = _values(piece, int(np.flatnonzero(stream)[-1]))
        return changes, before, last

    def _is_beyond(self, seqs: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Seqs go on growing in a log that takes the place of another: so the place of the point in its log tells."""
        mark = self.point.log_position
        found: npt.NDArray[np.bool_] = (seqs["ledger"] > mark.ledger_id) | (
            (seqs["ledger"] == mark.ledger_id) & (seqs["entry"].astype(np.int64) > mark.entry_id)
        )
        return found


def _commit_ts(piece: pa.Table) -> npt.NDArray[np.uint64]:
    """As they are; of a format that keeps only their time, the largest ones of their milliseconds."""
    column = piece.column("_commit_ts")
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.uint64()).to_numpy()
    milliseconds = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_numpy()
    return (milliseconds.astype(np.uint64) + np.uint64(1) << np.uint64(COUNTER_BITS)) - np.uint64(1)


def _pieces(objects: ObjectStore, fmt: FileFormat, path: str) -> Iterator[pa.Table]:
    content = objects.read(path)
    if content is None:
        raise Corruption(f"{objects.url}/{path} is gone", hint="restore the files of the sink, then start again")
    try:
        yield from fmt.pieces(content.data)
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        raise Corruption(
            f"{objects.url}/{path} cannot be read: {error}", hint="restore the files of the sink, then start again"
        ) from error


def _seqs(piece: pa.Table) -> npt.NDArray[np.void]:
    values = piece.column("_seq").cast(pa.binary()).to_pylist()
    return np.frombuffer(b"".join(value for value in values if value is not None), SEQ_DTYPE)


def values_of(rows: pa.Table) -> dict[str, Any]:
    """The values of the last row, as `TableAtSink.last` has them."""
    return _values(rows, rows.num_rows - 1)


def _values(rows: pa.Table, number: int) -> dict[str, Any]:
    row: dict[str, Any] = rows.slice(number, 1).to_pylist()[0]
    return {name: value for name, value in row.items() if name not in _NOT_VALUES}
