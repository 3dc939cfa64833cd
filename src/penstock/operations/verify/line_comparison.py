"""One table whose format is lines of text: as long as the files are the bytes that the log encodes to, they are not even read
as rows. From the first byte that differs, rows are compared.

A row is always the same line, however batches and files are cut. So equal bytes are equal rows, in the same order, with
everything that a line says; and they are compared as fast as memory is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from penstock.files import Buffer
from penstock.log.position import Seq
from penstock.operations.verify.report import Differences
from penstock.operations.verify.table_comparison import FileRows, TableComparison

Bytes = npt.NDArray[np.uint8]

_AT_A_TIME_BYTES = 256 << 10  # so much that what a comparison makes stays in the processor's cache


class LineComparison:
    """As `TableComparison`, of encoded changes. `files`: their names, versions and content. `rows` reads lines, which it may
    call by a name, as pieces of a table, of a version. Rows before `first` belong to entries that were trimmed: then rows are
    compared from the beginning."""

    def __init__(
        self,
        files: Iterator[tuple[str, int, Buffer]],
        rows: Callable[[str, int, Buffer, Seq | None], Iterator[FileRows]],
        first: Seq | None = None,
    ) -> None:
        self.altered = False  # once finished: every row has its values, and lines are others all the same
        self.differences = Differences()
        self._files = files
        self._rows = rows
        self._file = ("", 0)  # that is read: its name and version
        self._rest: Bytes = np.empty(0, np.uint8)  # of it
        self._last = b""
        self._first = first
        self._by_row: TableComparison | None = None
        if first is not None:
            self._compare_rows([])

    @property
    def before(self) -> int:
        return self._by_row.before if self._by_row is not None else 0

    def expect(self, expected: Buffer, version: int, count: int, last: bytes, *, may_be_pending: bool = False) -> None:
        """Compares the next changes of a version: their lines, how many they are, and the seq and operation of the last."""
        if self._by_row is None:
            left = self._pass(np.frombuffer(expected, np.uint8), version)
            if left is None:
                self.differences.changes += count
                self._last = last
                return
            self._compare_rows(left)
        assert self._by_row is not None
        for piece in self._rows("what the log has", version, expected, None):
            self._by_row.expect(piece.rows, version, may_be_pending=may_be_pending)

    def finish(self) -> Differences:
        if self._by_row is None:
            self._compare_rows([])
        else:
            self.altered = self._first is None
        assert self._by_row is not None
        found = self._by_row.finish()
        self.altered = self.altered and found.equal and not found.pending
        return found

    def _compare_rows(self, passed: list[tuple[tuple[str, int], Bytes]]) -> None:
        """From here on each row is compared: first those of `passed`, then what is left."""

        def pieces() -> Iterator[FileRows]:
            for file, data in (*passed, (self._file, self._rest)):
                yield from self._rows(*file, data.data, self._first)
            for name, version, content in self._files:
                yield from self._rows(name, version, content, self._first)

        self._by_row = TableComparison(pieces(), self._last)
        self._by_row.differences = self.differences

    def _pass(self, expected: Bytes, version: int) -> list[tuple[tuple[str, int], Bytes]] | None:
        """Passes these bytes in the files of their version: None if the files go on with them, else what was passed before they
        differ. It ends where a file ends, and so with a line."""
        passed: list[tuple[tuple[str, int], Bytes]] = []
        at = 0
        while at < len(expected):
            if not len(self._rest):
                file = next(self._files, None)
                if file is None:
                    return passed
                self._file, self._rest = file[:2], np.frombuffer(file[2], np.uint8)
                continue
            size = min(len(self._rest), len(expected) - at)
            if self._file[1] != version or not _same(self._rest[:size], expected[at : at + size]):
                return passed
            passed.append((self._file, self._rest[:size]))
            self._rest = self._rest[size:]
            at += size
        return None


def _same(ones: Bytes, others: Bytes) -> bool:
    """Of two arrays of one length."""
    step = _AT_A_TIME_BYTES
    return all(np.array_equal(ones[at : at + step], others[at : at + step]) for at in range(0, len(ones), step))
