"""Columns of byte strings of differing lengths, one per row, and how they are joined row by row.

A row, an event and a transaction are all made alike: pieces laid end to end. `join` does this for a million rows with
one pass over each piece and no Python per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ByteColumn:
    """Row i is `data[start[i] : start[i] + length[i]]`; rows may share bytes."""

    data: Bytes
    start: Ints
    length: Ints

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: npt.NDArray[np.int64]) -> ByteColumn:
        return ByteColumn(self.data, self.start[rows], self.length[rows])

    def where(self, keep: npt.NDArray[np.bool_]) -> ByteColumn:
        """Rows outside `keep` become empty."""
        return ByteColumn(self.data, self.start, np.where(keep, self.length, 0))


def fixed(matrix: Bytes) -> ByteColumn:
    """Row i is `matrix[i]`."""
    count, width = matrix.shape
    return ByteColumn(np.ascontiguousarray(matrix).reshape(-1), np.arange(count) * width, np.full(count, width))


def little_endian(values: npt.NDArray[np.generic], width: int) -> ByteColumn:
    """The low `width` bytes of each value, little-endian."""
    return fixed(values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width])


def big_endian(values: npt.NDArray[np.generic], width: int) -> ByteColumn:
    return fixed(values.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 8 - width :])


def constant(value: bytes, count: int) -> ByteColumn:
    return ByteColumn(np.frombuffer(value, np.uint8), np.zeros(count, np.int64), np.full(count, len(value)))


def choice(words: Sequence[bytes], which: npt.NDArray[np.integer]) -> ByteColumn:
    """`words[which[i]]` for each row."""
    lengths = np.array([len(word) for word in words], np.int64)
    starts = np.cumsum(lengths) - lengths
    return ByteColumn(np.frombuffer(b"".join(words), np.uint8), starts[which], lengths[which])


def digits(values: npt.NDArray[np.integer], width: int) -> ByteColumn:
    """Decimal digits with leading zeros."""
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return fixed((values.astype(np.int64)[:, None] // powers % 10 + ord("0")).astype(np.uint8))


def join(pieces: Sequence[ByteColumn]) -> ByteColumn:
    """Row i is row i of each piece, end to end, in new memory without gaps."""
    length: Ints = np.zeros(len(pieces[0]), np.int64)
    for piece in pieces:
        length += piece.length
    start = np.cumsum(length) - length
    out = np.empty(int(length.sum()), np.uint8)
    at = start.copy()
    for piece in pieces:
        _scatter(out, at, _read_only(piece.data), piece.start, piece.length)
    return ByteColumn(out, start, length)


def groups(rows: ByteColumn, counts: Ints) -> ByteColumn:
    """Row i is the next `counts[i]` of `rows` together. `rows` must be as `join` makes them, without gaps."""
    ends = np.cumsum(counts)
    edges = np.append(rows.start, len(rows.data))
    first = edges[ends - counts]
    return ByteColumn(rows.data, first, edges[ends] - first)


def concatenate(parts: Sequence[ByteColumn]) -> ByteColumn:
    """The rows of all parts, one part after the other."""
    base = np.cumsum([0, *(len(part.data) for part in parts)])
    return ByteColumn(
        np.concatenate([part.data for part in parts]),
        np.concatenate([part.start + at for part, at in zip(parts, base[:-1], strict=True)]),
        np.concatenate([part.length for part in parts]),
    )


def _read_only(data: Bytes) -> Bytes:
    view = data.view()
    view.flags.writeable = False  # to numba a read-only array is another type: this way the kernel is compiled once
    return view


@kernel
def _scatter(out: Bytes, at: Ints, data: Bytes, start: Ints, length: Ints) -> None:
    """Row i of the column goes to `out[at[i]:]`; `at` moves behind it."""
    for i in range(len(at)):
        copy_bytes(out, at[i], data, start[i], length[i])
        at[i] += length[i]
