"""What a sink holds of one table against what the log says it must hold, row by row.

Rows are matched by seq and operation, which together are unique. Every difference is one of five kinds: a row that is
*lost*, *doubled*, *wrong* (another value than the log gives), *misplaced* (before a row that it must follow, or among those
of another version of the table) or *unknown* (the log has no such row). Whole columns are compared, and no Python runs per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.log.position import Seq
from penstock.operations.verify.report import EXAMPLES_MAX, Differences
from penstock.operations.verify.row_difference import different_rows, different_values

_SEQ_BYTES = 24
_KEY_BYTES = _SEQ_BYTES + 1
_LOST_KEPT_MAX = 100_000  # seqs of lost rows: those that come later are misplaced

Keys = npt.NDArray[np.bytes_]
_NO_KEYS: Keys = np.empty(0, f"S{_KEY_BYTES}")


class FileRows(NamedTuple):
    """The rows of a piece of a file that the log still has, the seq and operation of each, of which version of the table its
    directory is, and those of the rows of entries that were trimmed."""

    rows: pa.Table
    keys: Keys
    version: int
    before: Keys = _NO_KEYS


def file_rows(table: pa.Table, version: int, first: Seq | None = None) -> FileRows:
    """Rows of a file; those before `first` belong to entries that were trimmed."""
    keys = _seqs(table)
    if first is None:
        return FileRows(table, keys, version)
    kept = keys >= np.bytes_(first.to_bytes())
    return FileRows(table.filter(pa.array(kept)), keys[kept], version, keys[~kept])


class TableComparison:
    """Reads one table's files, piece by piece, in step with the expected changes, which come in seq order.

    `last` is the seq and operation of the last row that was compared already.
    """

    def __init__(self, pieces: Iterator[FileRows], last: bytes = b"") -> None:
        self.before = 0
        self.differences = Differences()
        self._pieces = pieces
        self._rest: FileRows | None = None  # of the piece that is read
        self._last = np.array([last], f"S{_KEY_BYTES}")[0]
        self._lost = _NO_KEYS
        self._awaited = _NO_KEYS  # the first of those that may still come
        self._last_before = _NO_KEYS

    def expect(self, expected: pa.Table, version: int, *, may_be_pending: bool = False) -> None:
        """Compares the next expected changes, in seq order, of one version of the table. With `may_be_pending` a missing row is
        pending, not lost, unless a later one is there."""
        if expected.num_rows == 0:
            return
        keys = _seqs(expected)
        actual = self._take(keys, version)
        self._compare(expected, keys, actual, may_be_pending)
        self._last = keys[-1]

    def finish(self) -> Differences:
        """Counts the rows that the files hold beyond all expected ones. Returns every difference."""
        while (rest := self._next()) is not None:
            self._surplus(rest.keys)
            self._rest = None
        return self.differences

    def _next(self) -> FileRows | None:
        """What is left of the piece that is read, or the next piece; None after the last one."""
        while self._rest is None or not len(self._rest.keys):
            self._rest = next(self._pieces, None)
            if self._rest is None:
                return None
            self._take_before(self._rest.before)
        return self._rest

    def _take_before(self, keys: Keys) -> None:
        """Rows whose entries were trimmed: nobody knows their values, but each comes once and in its order."""
        if not len(keys):
            return
        self.before += len(keys)
        keys = np.concatenate([self._last_before, keys])
        self._last_before = keys[-1:]
        again, late = keys[1:] == keys[:-1], keys[1:] < keys[:-1]
        self.differences.doubled += int(again.sum())
        self.differences.misplaced += int(late.sum())
        for place in np.flatnonzero(again | late)[:EXAMPLES_MAX]:
            what = "doubled" if again[place] else "out of order"
            self.differences.example(f"{what}: seq {_text(keys[place + 1])} comes after {_text(keys[place])}")

    def _take(self, expected: Keys, version: int) -> pa.Table | None:
        """The rows in file order: as many as are expected if they are those, else all up to the first that comes later."""
        taken: list[pa.Table] = []
        left = expected
        as_expected = True
        while len(left) and (rest := self._next()) is not None:
            count = min(len(left), len(rest.keys))
            as_expected = as_expected and np.array_equal(rest.keys[:count], left[:count])
            if as_expected:
                left = left[count:]
            else:
                beyond = np.flatnonzero(rest.keys > expected[-1])
                count = int(beyond[0]) if len(beyond) else len(rest.keys)
            taken.append(rest.rows.slice(0, count))
            if rest.version != version:
                self._misfiled(rest.keys[:count][np.isin(rest.keys[:count], expected)], rest.version, version)
            self._rest = FileRows(rest.rows.slice(count), rest.keys[count:], rest.version)
            if count < len(rest.keys):
                break
        taken = [table for table in taken if table.num_rows]
        return pa.concat_tables(taken, promote_options="default") if taken else None

    def _misfiled(self, keys: Keys, there: int, version: int) -> None:
        """Rows are read by the columns of the version in whose directory they are."""
        self.differences.misplaced += len(keys)
        for key in keys[:EXAMPLES_MAX]:
            self.differences.example(
                f"misplaced: seq {_text(key)} is among the files of version {there}, not of {version}"
            )

    def _compare(self, expected: pa.Table, keys: Keys, actual: pa.Table | None, may_be_pending: bool) -> None:
        found = self.differences
        found.changes += len(keys)
        actual_keys = _seqs(actual) if actual is not None else keys[:0]
        if actual is not None and np.array_equal(keys, actual_keys):
            self._give_up_awaited()
            self._values(expected, actual, keys)
            return
        missing = keys[~np.isin(keys, actual_keys)]
        known = np.isin(actual_keys, keys)
        if known.any():
            self._give_up_awaited()
        if may_be_pending:
            passed = missing < np.sort(actual_keys[known])[-1] if known.any() else np.zeros(len(missing), np.bool_)
            awaited, missing = missing[~passed], missing[passed]
            found.pending += len(awaited)
            found.changes -= len(awaited)
            self._awaited = np.concatenate([self._awaited, awaited[: _LOST_KEPT_MAX - len(self._awaited)]])
        self._lose(missing, len(missing))
        if actual is None:
            return
        first_of_its_kind = np.zeros(len(actual_keys), dtype=bool)
        first_of_its_kind[np.unique(actual_keys, return_index=True)[1]] = True
        again = actual_keys[known & ~first_of_its_kind]
        found.doubled += len(again)
        for key in again[:EXAMPLES_MAX]:
            found.example(f"doubled: seq {_text(key)}")
        self._surplus(actual_keys[~known])
        order = np.flatnonzero(known & first_of_its_kind)
        self._order(actual_keys[order])
        order = order[np.argsort(actual_keys[order], kind="stable")]
        wanted = np.flatnonzero(np.isin(keys, actual_keys))
        self._values(expected.take(wanted), actual.take(order), keys[wanted])

    def _lose(self, keys: Keys, count: int) -> None:
        """So many rows are lost; `keys` are the first of them."""
        self.differences.lost += count
        self._lost = np.concatenate([self._lost, keys[: _LOST_KEPT_MAX - len(self._lost)]])
        for key in keys[:EXAMPLES_MAX]:
            self.differences.example(f"lost: seq {_text(key)}")

    def _give_up_awaited(self) -> None:
        """A row is there that comes after all that were not delivered yet. Rows of a table come to a sink in their order, so
        those will not come any more."""
        found = self.differences
        if found.pending:
            self._lose(self._awaited, found.pending)
            found.changes += found.pending
            found.pending = 0
            self._awaited = _NO_KEYS

    def _order(self, keys: Keys) -> None:
        """Counts the rows that stand after one that they must precede."""
        if len(keys) < 2:
            return
        rank = np.argsort(np.argsort(keys, kind="stable"), kind="stable")
        late = np.flatnonzero(rank < np.maximum.accumulate(rank))
        self.differences.misplaced += len(late)
        for row in late[:EXAMPLES_MAX]:
            self.differences.example(f"out of order: seq {_text(keys[row])} comes after {_text(keys[row - 1])}")

    def _surplus(self, keys: Keys) -> None:
        """Counts rows that were not expected here: misplaced if they were missed before, doubled if their seq was passed
        already, else unknown."""
        if not len(keys):
            return
        found = self.differences
        late = np.isin(keys, self._lost)
        if late.any():
            places = np.flatnonzero(late)
            late[:] = False
            late[places[np.unique(keys[places], return_index=True)[1]]] = True  # one that comes twice is doubled
            self._lost = self._lost[~np.isin(self._lost, keys[late])]
            found.lost -= int(late.sum())
            found.misplaced += int(late.sum())
            for key in keys[late][:EXAMPLES_MAX]:
                found.example(f"out of order: seq {_text(key)} comes too late")
        passed = ~late & (keys <= self._last)
        found.doubled += int(passed.sum())
        for key in keys[passed][:EXAMPLES_MAX]:
            found.example(f"doubled: seq {_text(key)}")
        unknown = keys[~late & ~passed]
        found.unknown += len(unknown)
        for key in unknown[:EXAMPLES_MAX]:
            found.example(f"unknown: seq {_text(key)} is not in the log")

    def _values(self, expected: pa.Table, actual: pa.Table, keys: Keys) -> None:
        names = expected.column_names
        for name in names:
            if name not in actual.column_names:
                self.differences.wrong += expected.num_rows
                self.differences.example(f"wrong: column {name} is missing")
                return
        # One without a value is no difference: other rows of a file may have columns that these were logged without.
        others = (name for name in actual.column_names if name not in names)
        if surplus := [name for name in others if actual.column(name).null_count < actual.num_rows]:
            self.differences.wrong += expected.num_rows
            self.differences.example(f"wrong: there is a column {surplus[0]} that nobody wrote")
            return
        wrong = np.flatnonzero(different_rows(expected, actual, names))
        if not len(wrong):
            return
        self.differences.wrong += len(wrong)
        some = wrong[:EXAMPLES_MAX]
        want, have = expected.take(some), actual.take(some)
        for name in names:
            for row in np.flatnonzero(different_values(want, have, name)):
                a, b = want.column(name)[int(row)].as_py(), have.column(name)[int(row)].as_py()
                self.differences.example(f"wrong: seq {_text(keys[wrong[row]])} column {name}: {b!r} instead of {a!r}")


def _seqs(table: pa.Table) -> Keys:
    """Seq and operation as 25-byte strings: an update that changes the key is a delete and an insert of one seq. Their
    byte order is the order of the rows."""
    if table.num_rows == 0:
        return np.empty(0, dtype=f"S{_KEY_BYTES}")
    key = np.empty((table.num_rows, _KEY_BYTES), np.uint8)
    key[:, :_SEQ_BYTES] = _fixed(table.column("_seq"), _SEQ_BYTES)
    key[:, _SEQ_BYTES:] = _fixed(table.column("_op"), 1)
    return key.reshape(-1).view(f"S{_KEY_BYTES}")


def _fixed(column: pa.ChunkedArray[Any], width: int) -> npt.NDArray[np.uint8]:
    """A column of binaries or strings of one width, as a row of bytes for each."""
    fixed = pa.concat_arrays(column.chunks).cast(pa.binary()).cast(pa.binary(width))
    raw = fixed.buffers()[1]
    assert raw is not None, "seq and operation are never null"
    data = np.frombuffer(memoryview(raw), np.uint8, count=len(fixed) * width, offset=fixed.offset * width)
    return data.reshape(-1, width)


def _text(key: bytes | np.bytes_) -> str:
    return str(Seq.from_bytes(bytes(key)[:_SEQ_BYTES].ljust(_SEQ_BYTES, b"\0")))
