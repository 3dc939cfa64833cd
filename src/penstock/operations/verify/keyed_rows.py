"""The rows of a table by their key, more than fit into memory: what is too much is laid down by a hash of the key.

Rows are added in any number. As long as they are few they stay in memory; then those that a later row of the same key
replaces go, and if that is not enough, the rest is written to a file without a name, in parts by a hash of their key. Two
sets of rows are compared part by part; a part that is itself too large is parted again, by other bits of the hash.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operations.verify.kernels import add_bytes, add_fixed

_PART_BITS = 5
PARTS = 1 << _PART_BITS
_DEPTH_MAX = 64 // _PART_BITS - 1

OpenFile = Callable[[], IO[bytes]]


class KeyedRows:
    """Rows of which the last of each key counts. All have the same columns; `keys` are those of the key."""

    def __init__(self, keys: list[str], open_file: OpenFile, bytes_max: int, depth: int = 0) -> None:
        self._keys = keys
        self._open_file = open_file
        self._bytes_max = bytes_max
        self._depth = depth
        self._held: list[pa.Table] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._places: list[list[tuple[int, int]]] = [[] for _ in range(PARTS)]

    def add(self, rows: pa.Table) -> None:
        """Rows that come after all that were added before."""
        if not rows.num_rows:
            return
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self._bytes_max:
            self._hold([self._last_of_each()])
            if self._bytes > self._bytes_max // 2 and self._depth < _DEPTH_MAX:
                self.lay_down()

    @property
    def in_memory(self) -> bool:
        return self._file is None

    def last(self) -> pa.Table | None:
        """The last row of each key, if all are in memory; None without a row."""
        assert self._file is None
        return self._last_of_each() if self._held else None

    def lay_down(self) -> None:
        """Writes what is in memory to the file, part by part."""
        if self._file is None:
            self._file = self._open_file()
        if not self._held:
            return
        rows = pa.concat_tables(self._held).combine_chunks()
        self._hold([])
        part = (_hashes(rows, self._keys) >> np.uint64(self._depth * _PART_BITS)) & np.uint64(PARTS - 1)
        order = np.argsort(part, kind="stable")
        bounds = np.searchsorted(part[order], np.arange(PARTS + 1))
        for number in np.flatnonzero(np.diff(bounds)):
            some = rows.take(order[bounds[number] : bounds[number + 1]])
            buffer = io.BytesIO()
            with pa.ipc.new_stream(buffer, some.schema) as stream:
                stream.write_table(some)
            self._places[number].append((self._file.seek(0, io.SEEK_END), len(buffer.getbuffer())))
            self._file.write(buffer.getbuffer())

    def part(self, number: int) -> KeyedRows:
        """The rows of one part, which were laid down."""
        assert self._file is not None
        made = KeyedRows(self._keys, self._open_file, self._bytes_max, self._depth + 1)
        for at, size in self._places[number]:
            self._file.seek(at)
            made.add(pa.ipc.open_stream(self._file.read(size)).read_all())
        return made

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _hold(self, rows: list[pa.Table]) -> None:
        self._held = rows
        self._bytes = sum(table.nbytes for table in rows)

    def _last_of_each(self) -> pa.Table:
        rows = pa.concat_tables(self._held)
        numbered = key_columns(rows, self._keys).append_column("n", pa.array(np.arange(rows.num_rows)))
        last = numbered.group_by(numbered.column_names[:-1]).aggregate([("n", "max")]).column("n_max")
        # Sorted, so that what is left stays in the order in which it came.
        return rows if len(last) == rows.num_rows else rows.take(np.sort(last.to_numpy()))


def key_columns(rows: pa.Table, keys: list[str]) -> pa.Table:
    """The columns of the key, under names of our own: to Arrow `.a` is a path, and a table may use any name."""
    return rows.select(keys).rename_columns([f"k{number}" for number in range(len(keys))])


def pairs(one: KeyedRows, other: KeyedRows) -> Iterator[tuple[pa.Table | None, pa.Table | None]]:
    """The last rows of each key of both, in parts that have the same keys: at most a few in memory."""
    if one.in_memory and other.in_memory:
        yield one.last(), other.last()
        return
    one.lay_down()
    other.lay_down()
    for number in range(PARTS):
        parts = one.part(number), other.part(number)
        yield from pairs(*parts)
        for part in parts:
            part.close()


def _hashes(rows: pa.Table, keys: list[str]) -> npt.NDArray[np.uint64]:
    """A hash of each row's key. The tables that are compared have the same types."""
    found = np.full(rows.num_rows, 0xCBF29CE484222325, np.uint64)
    for key in keys:
        column = pa.concat_arrays(rows.column(key).chunks)
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.string())
        if pa.types.is_primitive(column.type) or pa.types.is_decimal(column.type):
            width = column.type.bit_width // 8
            add_fixed(_bytes(column.buffers()[1])[column.offset * width :], width, found)
        else:
            texts = column.cast(pa.large_binary())
            _, offsets, data = texts.buffers()
            bounds = _bytes(offsets).view(np.int64)[texts.offset : texts.offset + len(texts) + 1]
            add_bytes(_bytes(data), bounds, found)
    return found


def _bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    return np.frombuffer(memoryview(buffer), np.uint8) if buffer is not None else np.empty(0, np.uint8)
