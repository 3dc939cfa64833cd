"""What kinds of values an expression has, and which of them meet.

| kind | Arrow type | of columns |
|---|---|---|
| BOOL | bool | none; of comparisons |
| INT | int64 | all integers but the two below, year |
| DECIMAL(p, s) | decimal128(p, s) | decimal of up to 38 digits; bigint unsigned and bit as decimal(20, 0) |
| DOUBLE | float64 | float, double |
| TEXT | string | char, varchar, text, json, uuid, inet; enum and set by the names of their elements |
| BYTES | binary | binary, varbinary, blob |
| DATE, DATETIME, TIMESTAMP, TIME | int64, the physical form | the types of these names; `scale` is the number of digits of the second |
| OTHER | the physical form | everything else: it can only be asked whether it is NULL |
| NULL | null | the literal |
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    Array = pa.Array[Any]
else:
    Array = pa.Array

DIGITS_MAX = 38  # of decimal128
INT_DIGITS = 19


class Kind(Enum):
    BOOL = "true or false"
    INT = "a whole number"
    DECIMAL = "a decimal number"
    DOUBLE = "a floating-point number"
    TEXT = "a text"
    BYTES = "bytes"
    DATE = "a date"
    DATETIME = "a datetime"
    TIMESTAMP = "a timestamp"
    TIME = "a time"
    OTHER = "a value of a type without operations"
    NULL = "NULL"


NUMBERS = (Kind.INT, Kind.DECIMAL, Kind.DOUBLE)
TEMPORAL = (Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME)


class ValueType(NamedTuple):
    """`precision` and `scale` are of DECIMAL; a time's `scale` is its fractional digits."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    @property
    def arrow(self) -> pa.DataType:
        if self.kind is Kind.DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        return _ARROW[self.kind]


_ARROW: dict[Kind, pa.DataType] = {
    Kind.BOOL: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.DATE: pa.int64(),
    Kind.DATETIME: pa.int64(),
    Kind.TIMESTAMP: pa.int64(),
    Kind.TIME: pa.int64(),
    Kind.NULL: pa.null(),
}

BOOL, INT, DOUBLE, TEXT, BYTES = (ValueType(k) for k in (Kind.BOOL, Kind.INT, Kind.DOUBLE, Kind.TEXT, Kind.BYTES))
NULL, OTHER = ValueType(Kind.NULL), ValueType(Kind.OTHER)
INT_AS_DECIMAL = ValueType(Kind.DECIMAL, INT_DIGITS, 0)


def common(left: ValueType, right: ValueType) -> ValueType | None:
    """The type in which two values meet, to be compared or to be alternatives of one another; None if they do not.

    true and false meet numbers as 1 and 0, because MySQL has no other type for them."""
    if left.kind is Kind.NULL or right.kind is Kind.NULL:
        return right if left.kind is Kind.NULL else left
    if left.kind is Kind.OTHER or right.kind is Kind.OTHER:
        return None
    if left.kind is right.kind:
        if left.kind is not Kind.DECIMAL:
            return left if left.scale >= right.scale else right
        return _both_decimal(left, right)
    if left.kind is Kind.BOOL and right.kind in NUMBERS:
        return common(INT, right)
    if right.kind is Kind.BOOL and left.kind in NUMBERS:
        return common(left, INT)
    if left.kind in NUMBERS and right.kind in NUMBERS:
        if Kind.DOUBLE in (left.kind, right.kind):
            return DOUBLE
        return _both_decimal(as_decimal(left), as_decimal(right))
    return None


def as_decimal(number: ValueType) -> ValueType:
    return INT_AS_DECIMAL if number.kind is Kind.INT else number


def _both_decimal(left: ValueType, right: ValueType) -> ValueType:
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return ValueType(Kind.DECIMAL, min(DIGITS_MAX, whole + scale), scale)
