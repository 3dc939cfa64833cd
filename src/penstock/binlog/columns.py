"""How the bytes of a column are read, and which Arrow form they take (schema/changes.py).

`plan_column` decides once per layout. Python runs per value only for binary JSON and for multi-byte charsets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog import kernels as k
from penstock.binlog import text_kernels as t
from penstock.binlog.charset import UTF8_CHARSETS, codec_of, single_byte_table
from penstock.binlog.errors import BadEvent
from penstock.binlog.json_binary import jsonb_to_text
from penstock.binlog.table_map import MapColumn
from penstock.binlog.types import DECIMAL_GROUP_BYTES, ColumnType, EventType
from penstock.errors import NotSupported

C = ColumnType

_DECIMAL128_DIGITS_MAX = 38
_INT64_DIGITS_MAX = 18
_ARROW_BYTES_MAX = (1 << 31) - 1

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
    """How one column is read (`kind`, `width`, `a`, `b`: see kernels.py) and what becomes of it."""

    kind: int
    width: int
    arrow: Any  # a pa.DataType, whose stubs demand the exact type
    a: int = 0
    b: int = 0
    charset: str | None = None  # of text; None: bytes stay bytes
    pad: int = 0  # BINARY(n) loses its trailing zero bytes on the way
    json: bool = False

    @property
    def words(self) -> int:
        """How many 64-bit words a value takes in the scratch arrays; 0 for kinds that are noted as slices."""
        if self.kind >= k.K_RAW:
            return 0
        return 2 if self.kind == k.K_DECIMAL_WIDE else 1


def plan_column(column: MapColumn) -> ColumnPlan:
    """The plan of a column. Raises `NotSupported` for types that are not read yet, `BadEvent` for impossible ones.

    Unknown signedness counts as signed, and an unknown charset as binary: complete the table map before
    (schema/from_table_map.py).
    """
    kind = column.type
    length = column.length
    if kind in _INTEGERS:
        width, signed, unsigned = _INTEGERS[C(kind)]
        if column.unsigned:
            return ColumnPlan(k.K_UINT, width, unsigned)
        return ColumnPlan(k.K_INT, width, signed)
    if kind == C.FLOAT and length == 4:
        return ColumnPlan(k.K_UINT, 4, pa.float32())
    if kind == C.DOUBLE and length == 8:
        return ColumnPlan(k.K_UINT, 8, pa.float64())
    if kind == C.NEWDECIMAL:
        return _plan_decimal(length, column.scale)
    if kind in (C.STRING, C.VARCHAR, C.VAR_STRING):
        width = 2 if length > 255 else 1
        if column.charset in (None, "binary"):
            return ColumnPlan(k.K_VAR, width, pa.binary(), pad=length if kind == C.STRING and column.charset else 0)
        return ColumnPlan(k.K_VAR, width, pa.string(), charset=column.charset)
    if kind in _BLOBS:
        width = _BLOB_LENGTH.get(C(kind), length)
        if column.charset in (None, "binary"):
            return ColumnPlan(k.K_VAR, _length_bytes(width), pa.binary())
        return ColumnPlan(k.K_VAR, _length_bytes(width), pa.string(), charset=column.charset)
    if kind == C.JSON:
        return ColumnPlan(k.K_VAR, _length_bytes(length), pa.string(), json=True)
    if kind in (C.GEOMETRY, C.VECTOR):
        return ColumnPlan(k.K_VAR, _length_bytes(length), pa.binary())
    if kind == C.ENUM and length in (1, 2):
        return ColumnPlan(k.K_UINT, length, pa.uint16())
    if kind == C.SET and 1 <= length <= 8:
        return ColumnPlan(k.K_UINT, length, pa.uint64())
    if kind == C.BIT and 1 <= length <= 64:
        return ColumnPlan(k.K_BE_UINT, (length + 7) // 8, pa.uint64(), length)
    return _plan_temporal(kind, length)


def _plan_temporal(kind: int, fsp: int) -> ColumnPlan:
    if kind in (C.TIMESTAMP2, C.DATETIME2, C.TIME2):
        if fsp > 6:
            raise BadEvent(f"{fsp} digits of a second are impossible", event_type=EventType.TABLE_MAP)
        fraction = (fsp + 1) // 2
        unit = (1, 10_000, 100, 1)[fraction]
        if kind == C.TIMESTAMP2:
            return ColumnPlan(k.K_TIMESTAMP2, 4 + fraction, pa.int64(), fraction, unit)
        if kind == C.DATETIME2:
            return ColumnPlan(k.K_DATETIME2, 5 + fraction, pa.int64(), fraction, unit)
        return ColumnPlan(k.K_TIME2, 3 + fraction, pa.int64(), fraction, unit)
    plans = {
        C.YEAR: ColumnPlan(k.K_YEAR, 1, pa.int16()),
        C.DATE: ColumnPlan(k.K_UINT, 3, pa.int32()),
        C.NEWDATE: ColumnPlan(k.K_UINT, 3, pa.int32()),
        C.TIMESTAMP: ColumnPlan(k.K_TIMESTAMP_OLD, 4, pa.int64()),
        C.DATETIME: ColumnPlan(k.K_DATETIME_OLD, 8, pa.int64()),
        C.TIME: ColumnPlan(k.K_TIME_OLD, 3, pa.int64()),
    }
    if kind in plans:
        return plans[C(kind)]
    if kind in (C.BLOB_COMPRESSED, C.VARCHAR_COMPRESSED):
        raise NotSupported("compressed columns are not supported", hint="alter the column to have no COMPRESSED")
    name = C(kind).name if kind in C._value2member_map_ else f"number {kind}"
    raise NotSupported(f"the column type {name} is not supported")


def _plan_decimal(precision: int, scale: int) -> ColumnPlan:
    if not 1 <= precision <= 65 or scale > min(precision, 38):
        raise BadEvent(f"decimal({precision},{scale}) is impossible", event_type=EventType.TABLE_MAP)
    width = sum(DECIMAL_GROUP_BYTES[9] * (n // 9) + DECIMAL_GROUP_BYTES[n % 9] for n in (precision - scale, scale))
    if precision <= _INT64_DIGITS_MAX:
        return ColumnPlan(k.K_DECIMAL, width, pa.decimal128(precision, scale), precision, scale)
    if precision <= _DECIMAL128_DIGITS_MAX:
        return ColumnPlan(k.K_DECIMAL_WIDE, width, pa.decimal128(precision, scale), precision, scale)
    return ColumnPlan(k.K_RAW, width, pa.string(), precision, scale)


def _length_bytes(width: int) -> int:
    if not 1 <= width <= 4:
        raise BadEvent(f"a value with {width} bytes of length is impossible", event_type=EventType.TABLE_MAP)
    return width


Words = npt.NDArray[np.int64]


def fixed_array(plan: ColumnPlan, words: Words, valid: npt.NDArray[np.uint8]) -> pa.Array[Any]:
    """The Arrow array of a column of fixed width. `words[w]` holds word w of every value."""
    n = words.shape[1]
    data: npt.NDArray[Any]
    if pa.types.is_decimal(plan.arrow):
        data = np.empty((n, 2), np.int64)
        data[:, 0] = words[0]
        data[:, 1] = words[1] if plan.words == 2 else words[0] >> 63
    elif pa.types.is_float32(plan.arrow):
        data = words[0].astype(np.uint32)
    else:
        data = words[0].astype(plan.arrow.to_pandas_dtype() if not pa.types.is_float64(plan.arrow) else np.int64)
    bitmap, nulls = _bitmap(valid)
    return pa.Array.from_buffers(plan.arrow, n, [bitmap, _buffer(data)], nulls)


def _buffer(array: Any) -> pa.Buffer:
    """A numpy array as Arrow memory, without copying. `Any` because the stubs do not know that arrays are buffers."""
    return pa.py_buffer(array)


def _bitmap(valid: npt.NDArray[np.uint8]) -> tuple[pa.Buffer | None, int]:
    nulls = len(valid) - int(np.count_nonzero(valid))
    if nulls == 0:
        return None, 0
    return _buffer(np.packbits(valid, bitorder="little")), nulls


def sliced_array(
    plan: ColumnPlan,
    buf: npt.NDArray[np.uint8],
    start: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    valid: npt.NDArray[np.uint8],
) -> pa.Array[Any]:
    """The Arrow array of a column whose values are slices of `buf`. Raises `ValueError` that names what is wrong."""
    n = len(start)
    offsets = np.empty(n + 1, np.int32)
    if plan.kind == k.K_RAW:
        out = np.empty(max(1, n * (plan.a + 3)), np.uint8)
        total, bad = k.decimal_text(buf, start, valid, plan.a, plan.b, offsets, out)
        if bad >= 0:
            raise ValueError("a decimal with impossible digits")
        return _var_array(plan.arrow, offsets, out[:total].copy(), valid)
    table = None
    if plan.charset is not None and plan.charset not in UTF8_CHARSETS:
        table = single_byte_table(plan.charset)
        if table is None:
            codec = codec_of(plan.charset)
            return _by_value(plan, buf, start, length, valid, lambda raw: raw.decode(codec))
        _size_check(3 * int(length.sum()))
        total, bad = t.recode_sizes(buf, start, length, table, offsets)
        if bad >= 0:
            raise ValueError(f"a byte that {plan.charset} does not have")
        out = np.empty(total, np.uint8)
        t.recode(buf, start, length, table, out)
        return _var_array(plan.arrow, offsets, out, valid)
    if plan.json:
        return _by_value(plan, buf, start, length, valid, jsonb_to_text)
    _size_check(int(np.maximum(length, plan.pad).sum()))
    total = t.gather_sizes(length, valid, plan.pad, offsets)
    out = np.empty(total, np.uint8)
    t.gather(buf, start, length, offsets, out)
    array = _var_array(plan.arrow, offsets, out, valid)
    if plan.charset is not None:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise ValueError(f"bytes that are not {plan.charset}") from None
    return array


def _size_check(total: int) -> None:
    if total > _ARROW_BYTES_MAX:
        raise ValueError(f"{total} bytes in one batch are too many")


def _var_array(
    arrow: Any, offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8], valid: npt.NDArray[np.uint8]
) -> pa.Array[Any]:
    bitmap, nulls = _bitmap(valid)
    return pa.Array.from_buffers(arrow, len(valid), [bitmap, _buffer(offsets), _buffer(data)], nulls)


def _by_value(  # noqa: PLR0917
    plan: ColumnPlan,
    buf: npt.NDArray[np.uint8],
    start: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    valid: npt.NDArray[np.uint8],
    convert: Callable[[bytes], str],
) -> pa.Array[Any]:
    """Converts each distinct value once, in Python: for binary JSON and for multi-byte charsets."""
    raw = sliced_array(ColumnPlan(k.K_VAR, plan.width, pa.binary()), buf, start, length, valid)
    encoded = raw.dictionary_encode()
    try:
        texts = [None if value is None else convert(value) for value in encoded.dictionary.to_pylist()]
    except UnicodeDecodeError:
        raise ValueError(f"bytes that are not {plan.charset or 'UTF-8'}") from None
    return pa.array(texts, pa.string()).take(encoded.indices)
