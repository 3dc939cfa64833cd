"""Row by row: what a sink holds of one table against what the log says it must hold.

Rows are matched by seq and operation, which together are unique. Every difference is one of four kinds: a row that is *lost*, *doubled*,
*wrong* (another value than the log gives), or *unknown* (the log has no such row). Whole columns are compared; single
rows only where columns differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.log.position import Seq
from penstock.operations.verify.report import EXAMPLES_MAX, Differences

_SEQ_BYTES = 24
_KEY_BYTES = _SEQ_BYTES + 1


class TableComparison:
    """Reads one table's files in step with the expected changes, which come in seq order.

    Rows before `first` belong to entries that were trimmed: they are counted and kept, and not compared with the log.
    `kept` holds every row of the files, for the comparison with the source.
    """

    def __init__(
        self, name: str, files: Iterator[str], read: Callable[[str], pa.Table], first: Seq | None = None
    ) -> None:
        self.name = name
        self.before = 0
        self._first = first.to_bytes() if first is not None else b""
        self.differences = Differences()
        self.kept: list[pa.Table] = []
        self._files = files
        self._read = read
        self._waiting: list[pa.Table] = []
        self._last = b""

    def expect(self, expected: pa.Table, *, may_be_pending: bool = False) -> None:
        """Compares the next expected changes, in seq order. With `may_be_pending` a missing row is pending, not
        lost."""
        if expected.num_rows == 0:
            return
        keys = _seqs(expected)
        actual = self._take_through(keys[-1])
        self._compare(expected, keys, actual, may_be_pending)
        self._last = bytes(keys[-1]).ljust(_KEY_BYTES, b"\0")

    def finish(self) -> Differences:
        """Counts the rows that the files hold beyond all expected ones. Returns every difference."""
        rest = self._waiting + [self._next(name) for name in self._files]
        self._waiting = []
        for table in rest:
            for key in _seqs(table):
                self._surplus(bytes(key))
        return self.differences

    def _next(self, name: str) -> pa.Table:
        table = self._read(name)
        self.kept.append(table)
        if not self._first:
            return table
        before = _seqs(table) < np.bytes_(self._first)
        self.before += int(before.sum())
        return table.filter(pa.array(~before))

    def _take_through(self, last: np.bytes_) -> pa.Table | None:
        """The rows in file order, up to the first row after `last`."""
        taken: list[pa.Table] = []
        while True:
            if not self._waiting:
                name = next(self._files, None)
                if name is None:
                    break
                self._waiting.append(self._next(name))
            table = self._waiting.pop()
            beyond = np.flatnonzero(_seqs(table) > last)
            if len(beyond):
                at = int(beyond[0])
                taken.append(table.slice(0, at))
                self._waiting.append(table.slice(at))
                break
            taken.append(table)
        taken = [table for table in taken if table.num_rows]
        return pa.concat_tables(taken, promote_options="default") if taken else None

    def _compare(
        self, expected: pa.Table, keys: npt.NDArray[np.bytes_], actual: pa.Table | None, may_be_pending: bool
    ) -> None:
        found = self.differences
        found.changes += len(keys)
        actual_keys = _seqs(actual) if actual is not None else keys[:0]
        if actual is not None and len(keys) == len(actual_keys) and bool((keys == actual_keys).all()):
            self._values(expected, actual, keys)
            return
        unique, first = np.unique(actual_keys, return_index=True)
        missing = keys[~np.isin(keys, unique)]
        if may_be_pending:
            found.pending += len(missing)
            found.changes -= len(missing)
        else:
            found.lost += len(missing)
            for key in missing[:EXAMPLES_MAX]:
                found.example(f"lost: seq {_text(key)}")
        first_of_its_kind = np.zeros(len(actual_keys), dtype=bool)
        first_of_its_kind[first] = True
        known = np.isin(actual_keys, keys)
        for key in actual_keys[known & ~first_of_its_kind]:
            found.doubled += 1
            found.example(f"doubled: seq {_text(key)}")
        for key in actual_keys[~known]:
            self._surplus(bytes(key))
        if actual is None:
            return
        order = np.flatnonzero(known & first_of_its_kind)
        order = order[np.argsort(actual_keys[order], kind="stable")]
        wanted = np.flatnonzero(np.isin(keys, actual_keys))
        self._values(expected.take(wanted), actual.take(order), keys[wanted])

    def _surplus(self, key: bytes) -> None:
        """Counts a row that was not expected here: doubled if its seq was passed already, else unknown."""
        if key.ljust(_KEY_BYTES, b"\0") <= self._last:
            self.differences.doubled += 1
            self.differences.example(f"doubled or out of order: seq {_text(key)}")
        else:
            self.differences.unknown += 1
            self.differences.example(f"unknown: seq {_text(key)} is not in the log")

    def _values(self, expected: pa.Table, actual: pa.Table, keys: npt.NDArray[np.bytes_]) -> None:
        wrong: set[int] = set()
        for name in expected.column_names:
            if name not in actual.column_names:
                self.differences.wrong += expected.num_rows
                self.differences.example(f"wrong: column {name} is missing")
                return
            want, have = expected.column(name), actual.column(name)
            if want.equals(have):
                continue
            for row, (a, b) in enumerate(zip(want.to_pylist(), have.to_pylist(), strict=True)):
                if a != b:
                    wrong.add(row)
                    self.differences.example(f"wrong: seq {_text(keys[row])} column {name}: {b!r} instead of {a!r}")
        self.differences.wrong += len(wrong)


def _seqs(table: pa.Table) -> npt.NDArray[np.bytes_]:
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
