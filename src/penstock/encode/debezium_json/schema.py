"""The schema that a line carries: Kafka Connect's description of the envelope, as Debezium's JSON converter writes it."""

from __future__ import annotations

import re
from typing import Any

from penstock.encode.debezium_json.values import is_milliseconds
from penstock.encode.settings import DebeziumJsonOptions
from penstock.encode.text import CHARACTERS, unsupported
from penstock.schema.model import BINARY_TYPES, SPATIAL_TYPES, Column, TableSchema

_SIGNED = {"tinyint": "int16", "smallint": "int16", "mediumint": "int32", "int": "int32", "bigint": "int64"}
_UNSIGNED = {**_SIGNED, "smallint": "int32", "int": "int64"}
_SEMANTIC = {
    "year": ("int32", "io.debezium.time.Year"),
    "date": ("int32", "io.debezium.time.Date"),
    "time": ("int64", "io.debezium.time.MicroTime"),
    "timestamp": ("string", "io.debezium.time.ZonedTimestamp"),
    "json": ("string", "io.debezium.data.Json"),
}
_SOURCE = (
    ("version", "string", False), ("connector", "string", False), ("name", "string", False), ("ts_ms", "int64", False),
    ("snapshot", "string", True), ("db", "string", False), ("sequence", "string", True), ("table", "string", True),
    ("server_id", "int64", False), ("gtid", "string", True), ("file", "string", False), ("pos", "int64", False),
    ("row", "int32", False), ("thread", "int64", True), ("query", "string", True),
    ("commit_ts", "int64", False), ("seq", "string", False),
)  # fmt: skip
_TRANSACTION = (("id", "string", False), ("total_order", "int64", False), ("data_collection_order", "int64", False))


def envelope_schema(table: TableSchema, options: DebeziumJsonOptions) -> dict[str, Any]:
    prefix = ".".join(map(_sanitized, (options.name, table.schema, table.table)))
    columns = [column_schema(column, options) for column in table.columns]
    row = {"type": "struct", "fields": columns, "optional": True, "name": f"{prefix}.Value"}
    return {
        "type": "struct",
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {**_struct(_SOURCE, "io.debezium.connector.mysql.Source"), "optional": False, "field": "source"},
            {**_struct(_TRANSACTION, "event.block"), "optional": True, "version": 1, "field": "transaction"},
            _field("op", "string", False),
            _field("ts_ms", "int64", True),
        ],
        "optional": False,
        "name": f"{prefix}.Envelope",
        "version": 1,
    }


def column_schema(column: Column, options: DebeziumJsonOptions) -> dict[str, Any]:
    kind, name, parameters = _kind(column, options)
    value: dict[str, Any] = {"type": kind, "optional": column.nullable}
    if kind == "struct":
        value["fields"] = [_field("wkb", "bytes", False), _field("srid", "int32", True)]
    if kind == "array":
        value["items"] = {"type": "float", "optional": False}
    if name:
        value |= {"name": name, "version": 1}
    if parameters:
        value["parameters"] = parameters
    return {**value, "field": column.name}


def _kind(column: Column, options: DebeziumJsonOptions) -> tuple[str, str, dict[str, str]]:
    """Type, name of the logical type and its parameters."""
    base = column.base_type
    if base in _SIGNED:
        return (_UNSIGNED if column.unsigned else _SIGNED)[base], "", {}
    if base in ("float", "double"):
        return base, "", {}
    if base == "decimal":
        return options.decimal, "", {}
    if base in _SEMANTIC:
        return (*_SEMANTIC[base], {})
    if base == "datetime":
        return "int64", "io.debezium.time." + ("Timestamp" if is_milliseconds(column) else "MicroTimestamp"), {}
    if base == "bit":
        length = (column.arguments or (1,))[0]
        return ("boolean", "", {}) if length == 1 else ("bytes", "io.debezium.data.Bits", {"length": str(length)})
    if base in ("enum", "set"):
        name = "io.debezium.data.Enum" if base == "enum" else "io.debezium.data.EnumSet"
        return "string", name, {"allowed": ",".join(column.elements)}
    if base in CHARACTERS:
        return "string", "", {}
    if base in BINARY_TYPES:
        return "bytes", "", {}
    if base in SPATIAL_TYPES:
        return "struct", "io.debezium.data.geometry.Geometry", {}
    if base == "vector":
        return "array", "io.debezium.data.FloatVector", {}
    raise unsupported(column)


def _struct(fields: tuple[tuple[str, str, bool], ...], name: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [_field(*field) for field in fields], "name": name}


def _field(name: str, kind: str, optional: bool) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


def _sanitized(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)
