"""+ - * / on columns. A result that its type cannot hold is NULL, and so is what is divided by zero: a row must not stop a
table because two of its numbers are large."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.rules.expressions.types import DIGITS_MAX, DOUBLE, INT, NULL, Array, Kind, ValueType, as_decimal

_WIDE_DIGITS_MAX = 76  # of decimal256
_INT_MIN = np.iinfo(np.int64).min


def result_type(operator: str, left: ValueType, right: ValueType) -> ValueType | None:
    """The type of the result for numbers or NULL; None if it would have more digits than can be computed with."""
    if NULL in (left, right):
        return NULL
    if operator == "/" or Kind.DOUBLE in (left.kind, right.kind):
        return DOUBLE
    if left.kind is Kind.INT and right.kind is Kind.INT:
        return INT
    left, right = as_decimal(left), as_decimal(right)
    if operator == "*":
        scale, digits = left.scale + right.scale, left.precision + right.precision + 1
    else:
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    if scale > DIGITS_MAX or digits > _WIDE_DIGITS_MAX:
        return None
    return ValueType(Kind.DECIMAL, min(digits, DIGITS_MAX), scale)


def computed(operator: str, result: ValueType, left: Array, right: Array) -> Array:
    """`left operator right` as `result`, which `result_type` said of their types."""
    if result.kind is Kind.INT:
        return _integers(operator, left, right)
    if result.kind is Kind.DOUBLE:
        # Not safe: an integer beyond 2**53 becomes the nearest floating-point number.
        return _doubles(operator, left.cast(pa.float64(), safe=False), right.cast(pa.float64(), safe=False))
    wide = [one.cast(pa.decimal128(19, 0)) if pa.types.is_integer(one.type) else one for one in (left, right)]
    if operator == "*":
        a, b = (one.cast(pa.decimal256(one.type.precision, one.type.scale)) for one in wide)
        return fitted(pc.multiply(a, b), result)
    digits = max(one.type.precision - one.type.scale for one in wide) + result.scale
    a, b = (one.cast(pa.decimal256(digits, result.scale)) for one in wide)
    return fitted(pc.add(a, b) if operator == "+" else pc.subtract(a, b), result)


def fitted(values: Array, kind: ValueType) -> Array:
    """Decimals of the same scale or a smaller one as `kind`; NULL where they have too many digits."""
    if values.type.scale != kind.scale:
        values = values.cast(pa.decimal256(_WIDE_DIGITS_MAX, kind.scale))
    if values.type.precision > kind.precision:
        bound = pa.scalar(Decimal(10) ** (kind.precision - kind.scale)).cast(values.type)
        inside = pc.less(pc.abs(values), bound)
        values = pc.if_else(inside, values, pa.scalar(None, values.type))
    return values.cast(kind.arrow)


def _integers(operator: str, left: Array, right: Array) -> Array:
    known = pc.and_(left.is_valid(), right.is_valid())
    a, b = (_numbers(one) for one in (left, right))
    with np.errstate(over="ignore", divide="ignore"):
        if operator == "+":
            made = a + b
            over = ((a ^ made) & (b ^ made)) < 0
        elif operator == "-":
            made = a - b
            over = ((a ^ b) & (a ^ made)) < 0
        else:
            made = a * b
            divisor = np.where((b == 0) | (b == -1), 1, b)
            over = (b != 0) & (b != -1) & (made // divisor != a)
            over |= (b == -1) & (a == _INT_MIN)
    valid = np.asarray(known.to_numpy(zero_copy_only=False)) & ~over
    return pa.array(made, pa.int64(), mask=~valid)


def _numbers(values: Array) -> npt.NDArray[np.int64]:
    return np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _doubles(operator: str, left: Array, right: Array) -> Array:
    if operator == "/":
        right = pc.if_else(pc.equal(right, pa.scalar(0.0)), pa.scalar(None, pa.float64()), right)
    function: Any = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}[operator]
    made: Array = function(left, right)
    finite: Array = pc.if_else(pc.is_finite(made), made, pa.scalar(None, pa.float64()))
    return finite
