"""Column values → row images of the binlog; and, independently, → the Arrow arrays of schema/changes.py.

Values are in the physical form of schema/changes.py (decimals as an integer of hundredths). Only the way to row images
knows how MariaDB packs bytes; the truth takes the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.sources.demo.byte_column import ByteColumn, big_endian, constant, fixed, join, little_endian

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Values:
    """One column of some rows. `valid` is None where no row is null."""

    data: npt.NDArray[np.generic] | ByteColumn
    valid: Mask | None = None

    def __len__(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """How the values of a type become bytes and Arrow."""

    arrow: pa.DataType
    pack: Callable[[npt.NDArray[np.generic]], ByteColumn] | int  # an int: byte strings, after a length of so many bytes


def integer(arrow: pa.DataType, width: int) -> ColumnForm:
    return ColumnForm(arrow, lambda values: little_endian(values, width))


def text(prefix_bytes: int) -> ColumnForm:
    return ColumnForm(pa.string(), prefix_bytes)


def binary(prefix_bytes: int) -> ColumnForm:
    return ColumnForm(pa.binary(), prefix_bytes)


def decimal(precision: int) -> ColumnForm:
    """decimal(precision, 2) from hundredths, for 8 or 10 digits before the point."""
    return ColumnForm(pa.decimal128(precision, 2), lambda values: _decimal(values, precision - 2))


def _decimal(values: npt.NDArray[np.generic], before: int) -> ByteColumn:
    hundredths = values.astype(np.int64)
    size = np.abs(hundredths)
    whole, cents = size // 100, size % 100
    parts = [big_endian(whole // 10**9, 1)] if before > 9 else []
    parts += [big_endian(whole % 10**9, 4), big_endian(cents, 1)]
    width = sum(int(part.length[0]) for part in parts) if len(size) else 0
    matrix = join(parts).data.reshape(len(size), width).copy()
    matrix[hundredths < 0] ^= 0xFF
    if width:
        matrix[:, 0] ^= 0x80
    return fixed(matrix)


def _float(values: npt.NDArray[np.generic]) -> ByteColumn:
    return fixed(values.astype("<f4").view(np.uint8).reshape(-1, 4))


def _double(values: npt.NDArray[np.generic]) -> ByteColumn:
    return fixed(values.astype("<f8").view(np.uint8).reshape(-1, 8))


def _time(values: npt.NDArray[np.generic]) -> ByteColumn:
    micros = values.astype(np.int64)
    seconds = np.abs(micros) // 1_000_000
    packed = (seconds // 3600) << 12 | (seconds // 60 % 60) << 6 | seconds % 60
    return big_endian(0x800000 + np.where(micros < 0, -packed, packed), 3)


def _datetime(values: npt.NDArray[np.generic]) -> ByteColumn:
    return big_endian((values.astype(np.int64) >> 24) + 0x8000000000, 5)


def _datetime6(values: npt.NDArray[np.generic]) -> ByteColumn:
    return join([_datetime(values), big_endian(values.astype(np.int64) & 0xFFFFFF, 3)])


def _timestamp(values: npt.NDArray[np.generic]) -> ByteColumn:
    return big_endian(values.astype(np.int64) // 1_000_000, 4)


def _timestamp3(values: npt.NDArray[np.generic]) -> ByteColumn:
    return join([_timestamp(values), big_endian(values.astype(np.int64) % 1_000_000 // 100, 2)])


TINYINT = integer(pa.int8(), 1)
TINYINT_UNSIGNED = integer(pa.uint8(), 1)
SMALLINT = integer(pa.int16(), 2)
SMALLINT_UNSIGNED = integer(pa.uint16(), 2)
MEDIUMINT = integer(pa.int32(), 3)
INT = integer(pa.int32(), 4)
INT_UNSIGNED = integer(pa.uint32(), 4)
BIGINT_UNSIGNED = integer(pa.uint64(), 8)
FLOAT = ColumnForm(pa.float32(), _float)
DOUBLE = ColumnForm(pa.float64(), _double)
BIT = integer(pa.uint64(), 1)  # up to eight bits
YEAR = ColumnForm(pa.int16(), lambda values: little_endian(values.astype(np.int64) - 1900, 1))
DATE = integer(pa.int32(), 3)  # the physical form is the binlog's
TIME = ColumnForm(pa.int64(), _time)
DATETIME = ColumnForm(pa.int64(), _datetime)
DATETIME6 = ColumnForm(pa.int64(), _datetime6)
TIMESTAMP = ColumnForm(pa.int64(), _timestamp)
TIMESTAMP3 = ColumnForm(pa.int64(), _timestamp3)
ENUM = integer(pa.uint16(), 1)
SET = integer(pa.uint64(), 1)


def row_images(forms: Sequence[ColumnForm], columns: Sequence[Values]) -> ByteColumn:
    """The image of each row: the null bitmap (spare bits set, as MariaDB does), then every value that is not null."""
    count = len(columns[0])
    nulls = np.ones((count, -(-len(columns) // 8) * 8), np.uint8)
    pieces: list[ByteColumn] = []
    for ordinal, (form, column) in enumerate(zip(forms, columns, strict=True)):
        nulls[:, ordinal] = 0 if column.valid is None else ~column.valid
        packed = _packed(form, column.data)
        pieces += packed if column.valid is None else [piece.where(column.valid) for piece in packed]
    bitmap = np.packbits(nulls, axis=1, bitorder="little")
    return join([fixed(bitmap), *pieces])


def _packed(form: ColumnForm, data: npt.NDArray[np.generic] | ByteColumn) -> list[ByteColumn]:
    if isinstance(data, ByteColumn):
        assert isinstance(form.pack, int)
        return [little_endian(data.length, form.pack), data]
    assert not isinstance(form.pack, int)
    return [form.pack(data)]


def arrow_array(form: ColumnForm, column: Values) -> pa.Array[Any]:
    """The column in its physical form."""
    valid = None if column.valid is None else pa.array(column.valid)
    if isinstance(column.data, ByteColumn):
        kept = column.data if column.valid is None else column.data.where(column.valid)
        flat = join([kept, constant(b"", len(kept))])
        offsets = np.append(flat.start, len(flat.data)).astype(np.int32)
        bits = None if valid is None else valid.buffers()[1]
        buffers = [bits, pa.py_buffer(offsets.data), pa.py_buffer(flat.data.data)]
        return pa.Array.from_buffers(form.arrow, len(kept), buffers)
    if pa.types.is_decimal(form.arrow):
        wide = np.empty((len(column.data), 2), np.int64)
        wide[:, 0] = column.data
        wide[:, 1] = wide[:, 0] >> 63
        bits = None if valid is None else valid.buffers()[1]
        return pa.Array.from_buffers(form.arrow, len(wide), [bits, pa.py_buffer(wide.data)])
    mask = None if column.valid is None else ~column.valid
    return pa.array(column.data.astype(form.arrow.to_pandas_dtype()), type=form.arrow, mask=mask)
