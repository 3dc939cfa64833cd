"""A column in its physical form ↔ a value of the language."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.names import element_names
from penstock.encode.text import plain_text
from penstock.rules.expressions.types import BYTES, DIGITS_MAX, DOUBLE, INT, OTHER, TEXT, Array, Kind, ValueType
from penstock.schema.model import ADDRESS_TYPES, BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, Column

_UNSIGNED_LONG = ValueType(Kind.DECIMAL, 20, 0)
_INTEGERS = {
    "tinyint": (pa.int8(), pa.uint8()),
    "smallint": (pa.int16(), pa.uint16()),
    "mediumint": (pa.int32(), pa.uint32()),
    "int": (pa.int32(), pa.uint32()),
    "bigint": (pa.int64(), pa.uint64()),
}
_PHYSICAL: dict[str, pa.DataType] = {
    "float": pa.float32(),
    "double": pa.float64(),
    "bit": pa.uint64(),
    "year": pa.int16(),
    "date": pa.int32(),
    "time": pa.int64(),
    "datetime": pa.int64(),
    "timestamp": pa.int64(),
    "enum": pa.uint16(),
    "set": pa.uint64(),
}
_TEMPORAL = {"date": Kind.DATE, "datetime": Kind.DATETIME, "timestamp": Kind.TIMESTAMP, "time": Kind.TIME}


def type_of(column: Column) -> ValueType:
    """The type that the column has in expressions."""
    base = column.base_type
    if base in _TEMPORAL:
        return ValueType(_TEMPORAL[base], 0, column.arguments[0] if column.arguments else 0)
    if base == "bit" or (base == "bigint" and column.unsigned) or (base == "set" and not column.elements):
        return _UNSIGNED_LONG
    if base in INTEGER_TYPES or base == "year" or (base == "enum" and not column.elements):
        return INT
    if base in ("float", "double"):
        return DOUBLE
    if base == "decimal":
        precision, scale = (*(column.arguments or (10,)), 0)[:2]
        return ValueType(Kind.DECIMAL, precision, scale) if precision <= DIGITS_MAX else OTHER
    if base in CHARACTER_TYPES or base in ADDRESS_TYPES or base in ("json", "enum", "set"):
        return TEXT
    return BYTES if base in BINARY_TYPES or base == "bytes" else OTHER


def physical_type(column: Column) -> pa.DataType:
    """The Arrow type of the column's physical form (schema/changes.py)."""
    base = column.base_type
    if base in INTEGER_TYPES:
        signed, unsigned = _INTEGERS[base]
        return unsigned if column.unsigned else signed
    if base == "decimal":
        precision, scale = (*(column.arguments or (10,)), 0)[:2]
        return pa.decimal128(precision, scale) if precision <= DIGITS_MAX else pa.string()
    if base in CHARACTER_TYPES or base in ADDRESS_TYPES or base == "json":
        return pa.string()
    return _PHYSICAL.get(base, pa.binary())


def value_of(column: Column, physical: Array) -> Array:
    """The column's values as `type_of` says. An element that its ENUM or SET does not have is NULL."""
    kind = type_of(column)
    if kind.kind is Kind.TEXT and column.base_type in ("enum", "set"):
        return names_of(column, physical)
    if kind is OTHER or physical.type == kind.arrow:
        return physical
    return physical.cast(kind.arrow)


def names_of(column: Column, ordinals: Array) -> Array:
    """The names of the elements; NULL for what is none."""
    known = len(column.elements) if column.base_type == "enum" else (1 << len(column.elements)) - 1
    there = pc.less_equal(ordinals, pa.scalar(known, ordinals.type))
    return element_names(column, pc.if_else(there, ordinals, pa.scalar(None, ordinals.type)))


def column_for(name: str, kind: ValueType) -> Column:
    """The column that values of this type make."""
    match kind.kind:
        case Kind.BOOL:
            made = "tinyint(1)"
        case Kind.DECIMAL:
            made = f"decimal({kind.precision},{kind.scale})"
        case Kind.DATETIME | Kind.TIMESTAMP | Kind.TIME:
            made = kind.kind.name.lower() + (f"({kind.scale})" if kind.scale else "")
        case Kind.TEXT:
            return Column(name, "longtext", charset="utf8mb4")
        case _:
            made = {Kind.INT: "bigint", Kind.DOUBLE: "double", Kind.BYTES: "longblob", Kind.DATE: "date"}[kind.kind]
    return Column(name, made)


def physical_of(kind: ValueType, values: Array) -> Array:
    """The values in the physical form of `column_for`."""
    if kind.kind is Kind.BOOL:
        return values.cast(pa.int8())
    return values.cast(pa.int32()) if kind.kind is Kind.DATE else values


def as_text(kind: ValueType, values: Array) -> Array:
    """The values as the server would print them; true is 1."""
    if kind.kind is Kind.TEXT:
        return values
    if kind.kind in (Kind.INT, Kind.DOUBLE):
        return pc.cast(values, pa.string())
    return plain_text(column_for("", kind), physical_of(kind, values))
