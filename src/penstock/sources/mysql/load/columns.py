"""How each column is selected, and how the texts that come become Arrow: the same forms as from the binlog.

Characters come as the bytes that the table stores (`character_set_results` is NULL) and go through the readers of the
binlog's texts, so that a charset means the same in load and stream.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.binlog.rows.arrays import BadValue, check_row, check_size, fixed_array
from penstock.binlog.rows.texts import read_binary, text_reader
from penstock.errors import NotSupported
from penstock.schema.model import ADDRESS_TYPES, BINARY_TYPES, CHARACTER_TYPES, SPATIAL_TYPES, Column
from penstock.schema.quoting import quoted_name
from penstock.sources.mysql.load import texts

_INTEGERS = {
    "tinyint": (pa.int8(), pa.uint8()),
    "smallint": (pa.int16(), pa.uint16()),
    "mediumint": (pa.int32(), pa.uint32()),
    "int": (pa.int32(), pa.uint32()),
    "bigint": (pa.int64(), pa.uint64()),
}
_NUMBERED = {"bit": pa.uint64(), "enum": pa.uint16(), "set": pa.uint64(), "year": pa.int16()}
_TEMPORAL = {
    "date": (pa.int32(), texts.dates),
    "datetime": (pa.int64(), texts.datetimes),
    "timestamp": (pa.int64(), texts.timestamps),
    "time": (pa.int64(), texts.times),
}
_DECIMAL128_DIGITS_MAX = 38
_WORD_DIGITS_MAX = 18
_LENGTH_BYTES = 4  # before each value that `prefixed` copies


class Values(NamedTuple):
    """The values of one column: where each is in `rows`, and how long; -1 for NULL."""

    rows: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]

    def text(self, row: int) -> bytes:
        start = int(self.starts[row])
        return self.rows[start : start + int(self.lengths[row])].tobytes()


class ColumnForm(NamedTuple):
    """`expression`: what is selected. `read`: the values as Arrow; raises `BadValue`. `compared`: what stands for the column
    in the order of a key. `literal`: a value's text, as SQL that equals it there."""

    expression: str
    read: Callable[[Values], pa.Array[Any]]
    compared: str
    literal: Callable[[bytes], str]


def column_form(column: Column) -> ColumnForm:
    """Raises `NotSupported` for a type that is not read."""
    name, base = quoted_name(column.name), column.base_type
    if base in _INTEGERS:
        return ColumnForm(name, partial(_integers, arrow=_INTEGERS[base][column.unsigned]), name, _digits)
    if base in _NUMBERED:
        # Their order is that of their numbers. A sum would be a double, which does not hold a set of 64 members.
        number = f"CAST({name} AS UNSIGNED)" if base in ("enum", "set") else f"{name} + 0"
        compared = number if base in ("enum", "set") else name
        return ColumnForm(number, partial(_integers, arrow=_NUMBERED[base]), compared, _digits)
    if base in ("float", "double"):
        # The product is a double, printed with as many digits as it takes to read it back; a float would be rounded.
        arrow = pa.float32() if base == "float" else pa.float64()
        return ColumnForm(f"{name} * 1e0", partial(_floats, arrow=arrow), name, _digits)
    if base == "decimal":
        precision, scale = (*column.arguments, 0)[:2] if column.arguments else (10, 0)
        arrow_decimal: Any = pa.decimal128(precision, scale) if precision <= _DECIMAL128_DIGITS_MAX else pa.string()
        expression = f"{name} + 0" if "zerofill" in column.mysql_type else name
        if precision <= _WORD_DIGITS_MAX:
            return ColumnForm(expression, partial(_small_decimals, arrow=arrow_decimal, scale=scale), name, _digits)
        return ColumnForm(expression, partial(_decimals, arrow=arrow_decimal), name, _digits)
    if base in _TEMPORAL:
        kind, kernel = _TEMPORAL[base]
        return ColumnForm(name, partial(_temporal, arrow=kind, kernel=kernel), name, _quoted)
    if base in CHARACTER_TYPES and column.charset not in (None, "binary"):
        introducer = f"_{column.charset} "
        return ColumnForm(
            name, partial(_texts, charset=str(column.charset)), name, lambda raw: f"{introducer}X'{raw.hex()}'"
        )
    if base in ADDRESS_TYPES or base == "json":
        return ColumnForm(name, partial(_texts, charset="utf8mb4"), name, _quoted)
    if base in BINARY_TYPES or base in SPATIAL_TYPES or base == "vector":
        return ColumnForm(name, _binaries, name, lambda raw: f"X'{raw.hex()}'")
    raise NotSupported(f"column {column.name}: {column.mysql_type} cannot be loaded yet")


def _digits(raw: bytes) -> str:
    return raw.decode("ascii")


def _quoted(raw: bytes) -> str:
    return f"'{raw.decode('ascii')}'"


def _integers(values: Values, *, arrow: Any) -> pa.Array[Any]:
    out = np.empty(len(values.starts), np.uint64)
    check_row(texts.integers(*values, out), "a text that is no number")
    data: Any = out.astype(arrow.to_pandas_dtype(), copy=False)  # two's complement: the low bytes are the number
    if data.dtype.itemsize < out.dtype.itemsize:
        back = data.astype(np.int64).astype(np.uint64)
        if not np.array_equal(back, out):
            raise BadValue(f"a number that is no {arrow}", int(np.flatnonzero(back != out)[0]))
    return fixed_array(arrow, values.lengths, data)


def _temporal(values: Values, *, arrow: Any, kernel: Any) -> pa.Array[Any]:
    out = np.empty(len(values.starts), arrow.to_pandas_dtype())
    check_row(kernel(*values, out), "a text that is no date or time")
    return fixed_array(arrow, values.lengths, out)


def _prefixed(values: Values) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    total = int(np.maximum(values.lengths, 0).sum(dtype=np.int64)) + _LENGTH_BYTES * len(values.lengths)
    check_size(total)
    out = np.empty(total, np.uint8)
    places = np.empty(len(values.lengths), np.int32)
    texts.prefixed(*values, out, places)
    return out, places


def _texts(values: Values, *, charset: str) -> pa.Array[Any]:
    return text_reader(charset, _LENGTH_BYTES)(*_prefixed(values))


def _binaries(values: Values) -> pa.Array[Any]:
    buffer, places = _prefixed(values)
    return read_binary(buffer, places, width=_LENGTH_BYTES)


def _converted(values: Values, arrow: Any) -> pa.Array[Any]:
    try:
        return pc.cast(_texts(values, charset="ascii"), arrow)
    except pa.ArrowInvalid as error:
        raise BadValue(f"a text that is no {arrow}: {error}") from None


def _small_decimals(values: Values, *, arrow: Any, scale: int) -> pa.Array[Any]:
    out = np.empty((len(values.starts), 2), np.int64)
    check_row(texts.decimals(*values, scale, out), "a text that is no decimal number")
    return fixed_array(arrow, values.lengths, out)


def _decimals(values: Values, *, arrow: Any) -> pa.Array[Any]:
    return _texts(values, charset="ascii") if arrow == pa.string() else _converted(values, arrow)


def _floats(values: Values, *, arrow: Any) -> pa.Array[Any]:
    doubles = _converted(values, pa.float64())
    return doubles if arrow == pa.float64() else pc.cast(doubles, arrow, safe=False)
