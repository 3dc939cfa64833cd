"""How the bytes of a column are found and read, and which Arrow form they take (schema/changes.py).

`plan_column` decides once per layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog.charset import codec_of
from penstock.binlog.charset_tables import charset_table
from penstock.binlog.errors import BadEvent
from penstock.binlog.rows import fixed, texts
from penstock.binlog.rows.addresses import ADDRESS_BYTES, read_addresses
from penstock.binlog.rows.old_temporal import DATETIME_BYTES, TIME_BYTES, TIMESTAMP_FRACTION_BYTES
from penstock.binlog.table_map import MapColumn
from penstock.binlog.types import DECIMAL_GROUP_BYTES, ColumnType, EventType
from penstock.errors import NotSupported

C = ColumnType
Reader = Callable[[npt.NDArray[np.uint8], npt.NDArray[np.int32]], "pa.Array[Any]"]

_DECIMAL128_DIGITS_MAX = 38
_INTEGERS = {
    C.TINY: (1, pa.int8(), pa.uint8()),
    C.SHORT: (2, pa.int16(), pa.uint16()),
    C.INT24: (3, pa.int32(), pa.uint32()),
    C.LONG: (4, pa.int32(), pa.uint32()),
    C.LONGLONG: (8, pa.int64(), pa.uint64()),
}
_BLOBS = (C.BLOB, C.TINY_BLOB, C.MEDIUM_BLOB, C.LONG_BLOB)
_BLOB_LENGTH = {C.TINY_BLOB: 1, C.MEDIUM_BLOB: 3, C.LONG_BLOB: 4}


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How one column is found in a row, and how its values become Arrow.

    `read` takes the buffer from the walk's base on and the places that the walk noted. It raises `BadValue`.
    """

    width: int  # bytes of a value; where it is `variable`, of the length before it
    arrow: Any  # a pa.DataType, whose stubs demand the exact type
    read: Reader
    variable: bool = False
    least: int = 16  # bytes that a value takes as Arrow however short it is
    is_json: bool = False
    growth: int = 8  # how much longer a value can be as Arrow, beyond `least`: JSON as text


def plan_column(column: MapColumn) -> ColumnPlan:
    """The plan of a column. Raises `NotSupported` for types that are not read, `BadEvent` for impossible ones.

    Unknown signedness counts as signed, and an unknown charset as binary: complete the table map before
    (schema/from_table_map.py).
    """
    kind = column.type
    length = column.length
    if kind in _INTEGERS:
        width, signed, unsigned = _INTEGERS[C(kind)]
        return _integer(width, unsigned if column.unsigned else signed, signed=not column.unsigned)
    if kind == C.FLOAT and length == 4:
        return _integer(4, pa.float32())
    if kind == C.DOUBLE and length == 8:
        return _integer(8, pa.float64())
    if kind == C.NEWDECIMAL:
        return _decimal(length, column.scale)
    if kind == C.STRING and column.form is not None and length == ADDRESS_BYTES[column.form]:
        return ColumnPlan(1, pa.string(), partial(read_addresses, form=column.form), variable=True, least=64)
    if kind in (C.STRING, C.VARCHAR, C.VAR_STRING):
        pad = length if kind == C.STRING and column.charset == "binary" else 0
        return _text(2 if length > 255 else 1, column.charset, pad)
    if kind in _BLOBS:
        return _text(_BLOB_LENGTH.get(C(kind), length), column.charset)
    if kind == C.JSON:
        width = _length_bytes(length)
        return ColumnPlan(width, pa.string(), partial(texts.read_json, width=width), variable=True, is_json=True)
    if kind in (C.GEOMETRY, C.VECTOR):
        return _text(length, None)
    if kind == C.ENUM and length in (1, 2):
        return _integer(length, pa.uint16())
    if kind == C.SET and 1 <= length <= 8:
        return _integer(length, pa.uint64())
    if kind == C.BIT and 1 <= length <= 64:
        width = (length + 7) // 8
        return ColumnPlan(width, pa.uint64(), partial(fixed.read_bits, width=width, count=length))
    if kind in (C.DATE, C.NEWDATE):
        return _integer(3, pa.int32())
    if kind == C.YEAR:
        return ColumnPlan(1, pa.int16(), fixed.read_years)
    if kind in (C.TIMESTAMP2, C.DATETIME2, C.TIME2):
        return _temporal(kind, length)
    if kind in (C.TIMESTAMP, C.DATETIME, C.TIME):
        return _old_temporal(kind, length)
    if kind in (C.BLOB_COMPRESSED, C.VARCHAR_COMPRESSED):
        width = _length_bytes(length if kind == C.BLOB_COMPRESSED else 2 if length > 255 else 1)
        charset = None if column.charset == "binary" else column.charset
        arrow: Any = pa.string() if charset else pa.binary()
        if charset and charset_table(charset) is None:
            codec_of(charset)  # refuses one that is not known
        read = partial(texts.read_compressed, width=width, charset=charset)
        return ColumnPlan(width, arrow, read, variable=True, growth=texts.ZLIB_GROWTH_MAX)
    name = C(kind).name if kind in C._value2member_map_ else f"number {kind}"
    raise NotSupported(f"the column type {name} is not supported")


def _integer(width: int, arrow: Any, *, signed: bool = False) -> ColumnPlan:
    return ColumnPlan(width, arrow, partial(fixed.read_integers, arrow=arrow, width=width, signed=signed))


def _text(width: int, charset: str | None, pad: int = 0) -> ColumnPlan:
    width = _length_bytes(width)
    if charset in (None, "binary"):
        read: Reader = partial(texts.read_binary, width=width, pad=pad)
        return ColumnPlan(width, pa.binary(), read, variable=True, least=16 + pad)
    return ColumnPlan(width, pa.string(), texts.text_reader(str(charset), width), variable=True)


def _temporal(kind: int, fsp: int) -> ColumnPlan:
    """The types of MySQL 5.6 and later, and of MariaDB with `mysql56_temporal_format=ON`."""
    fraction = (_digits(fsp) + 1) // 2
    whole, kernel = {C.TIMESTAMP2: (4, "timestamps"), C.DATETIME2: (5, "datetimes"), C.TIME2: (3, "times")}[C(kind)]
    arguments = (fraction, (1, 10_000, 100, 1)[fraction])
    return ColumnPlan(whole + fraction, pa.int64(), partial(fixed.read_temporal, kernel=kernel, arguments=arguments))


def _old_temporal(kind: int, fsp: int) -> ColumnPlan:
    """The types of MySQL 5.5, and of MariaDB with `mysql56_temporal_format=OFF`: there with digits of a second too."""
    unit = 10 ** (6 - _digits(fsp))
    if fsp == 0:
        width, kernel = {
            C.TIMESTAMP: (4, "old_timestamps"),
            C.DATETIME: (8, "old_datetimes"),
            C.TIME: (3, "old_times"),
        }[C(kind)]
        return ColumnPlan(width, pa.int64(), partial(fixed.read_temporal, kernel=kernel, arguments=()))
    if kind == C.TIMESTAMP:
        fraction = TIMESTAMP_FRACTION_BYTES[fsp]
        read = partial(fixed.read_temporal, kernel="timestamps", arguments=(fraction, unit))
        return ColumnPlan(4 + fraction, pa.int64(), read)
    width, kernel = (
        (DATETIME_BYTES[fsp], "counted_datetimes") if kind == C.DATETIME else (TIME_BYTES[fsp], "counted_times")
    )
    return ColumnPlan(width, pa.int64(), partial(fixed.read_temporal, kernel=kernel, arguments=(width, unit)))


def _digits(fsp: int) -> int:
    if not 0 <= fsp <= 6:
        raise BadEvent(f"{fsp} digits of a second are impossible", event_type=EventType.TABLE_MAP)
    return fsp


def _decimal(precision: int, scale: int) -> ColumnPlan:
    if not 1 <= precision <= 65 or scale > min(precision, 38):
        raise BadEvent(f"decimal({precision},{scale}) is impossible", event_type=EventType.TABLE_MAP)
    width = sum(DECIMAL_GROUP_BYTES[9] * (n // 9) + DECIMAL_GROUP_BYTES[n % 9] for n in (precision - scale, scale))
    if precision <= _DECIMAL128_DIGITS_MAX:
        arrow = pa.decimal128(precision, scale)
        return ColumnPlan(width, arrow, partial(fixed.read_decimals, arrow=arrow, precision=precision, scale=scale))
    read = partial(texts.read_decimal_texts, precision=precision, scale=scale)
    return ColumnPlan(width, pa.string(), read, least=precision + 3 + 4)


def _length_bytes(width: int) -> int:
    if not 1 <= width <= 4:
        raise BadEvent(f"a value with {width} bytes of length is impossible", event_type=EventType.TABLE_MAP)
    return width
