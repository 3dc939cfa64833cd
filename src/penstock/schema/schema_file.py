"""Schema files of the storage protocol: the JSON of a table version and its name, as TiCDC writes and checks them.

The checksum is the CRC-32 of the definition without query, type and version, and with its columns sorted by name: so a
table that returns to an earlier shape has the earlier checksum. The JSON is what Go's encoder prints: indented by four
spaces, with `<`, `>` and `&` escaped.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from penstock.errors import Corruption
from penstock.schema.model import INTEGER_TYPES, SPATIAL_TYPES, Column, DdlType, TableSchema

_FORMAT_VERSION = 1
_UNSIGNED_PRECISION = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}
_DEFAULT_PRECISION = {
    "tinyint": 4,
    "smallint": 6,
    "mediumint": 9,
    "int": 11,
    "bigint": 20,
    "float": 12,
    "double": 22,
    "bit": 1,
    "year": 4,
    "char": 1,
    "binary": 1,
    "varchar": 5,
    "varbinary": 5,
    "tinytext": 255,
    "tinyblob": 255,
    "text": 65_535,
    "blob": 65_535,
    "mediumtext": 16_777_215,
    "mediumblob": 16_777_215,
    "longtext": 4_294_967_295,
    "longblob": 4_294_967_295,
}


def schema_file(table: TableSchema) -> tuple[str, bytes]:
    """Name and content of the schema file of a table version, or of a database (whose table name is empty)."""
    return f"schema_{table.version}_{schema_checksum(table):010d}.json", schema_json(table)


def schema_json(table: TableSchema) -> bytes:
    """The file's content. The columns of a database are `null`, as Go prints an absent list."""
    columns = [_column(column) for column in table.columns]
    return _go_json(
        {
            "Table": table.table,
            "Schema": table.schema,
            "Version": _FORMAT_VERSION,
            "TableVersion": table.version,
            "Query": table.query,
            "Type": int(table.ddl_type),
            "TableColumns": columns or None,
            "TableColumnsTotal": len(columns),
        }
    )


def table_of_schema_file(content: bytes, where: str) -> TableSchema:
    """The table version that a schema file tells. What the file does not have is not known: charsets, display widths, whether a
    default is computed, and what a rename came from other than in the statement. Raises `Corruption`."""
    try:
        value: dict[str, Any] = json.loads(content)
        columns = tuple(_column_of(column) for column in value["TableColumns"] or ())
        known = value["Type"] in DdlType.__members__.values()
        kind = DdlType(value["Type"]) if known else DdlType.NONE
        return TableSchema(value["Schema"], value["Table"], int(value["TableVersion"]), columns, value["Query"], kind)
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(f"{where} is no schema file: {error!r}") from error


def schema_checksum(table: TableSchema) -> int:
    """The checksum in the file's name; the consumer computes it again and compares."""
    columns = [_column(column) for column in sorted(table.columns, key=lambda column: column.name.encode())]
    return zlib.crc32(
        _go_json(
            {
                "Table": table.table,
                "Schema": table.schema,
                "Version": 0,
                "TableColumns": columns,
                "TableColumnsTotal": len(columns),
            }
        )
    )


def _column(column: Column) -> dict[str, Any]:
    base = column.base_type
    arguments = column.arguments
    value: dict[str, Any] = {
        "ColumnName": column.name,
        # A table map does not tell the kind of a geometry.
        "ColumnType": "GEOMETRY" if base in SPATIAL_TYPES else base.upper() + (" UNSIGNED" if column.unsigned else ""),
    }
    if column.default is not None:
        value["ColumnDefault"] = column.default
    if base == "decimal":
        precision, scale = (*arguments, 10, 0)[:2] if not arguments else (*arguments, 0)[:2]
        value["ColumnPrecision"], value["ColumnScale"] = str(precision), str(scale)
    elif base in ("timestamp", "datetime", "time"):
        if arguments and arguments[0]:
            value["ColumnScale"] = str(arguments[0])
    elif base in INTEGER_TYPES:  # never a display width: a table map does not tell it
        value["ColumnPrecision"] = str((_UNSIGNED_PRECISION if column.unsigned else _DEFAULT_PRECISION)[base])
    elif base in _DEFAULT_PRECISION:
        value["ColumnPrecision"] = str(arguments[0] if arguments else _DEFAULT_PRECISION[base])
        if base in ("float", "double") and len(arguments) > 1 and arguments[1]:
            value["ColumnScale"] = str(arguments[1])
    if not column.nullable:
        value["ColumnNullable"] = "false"
    if column.primary_key:
        value["ColumnIsPk"] = "true"
    if column.elements:
        value["ColumnElems"] = list(column.elements)
    return value


def _column_of(value: dict[str, Any]) -> Column:
    name, _, sign = str(value["ColumnType"]).lower().partition(" ")
    arguments = ""
    if name == "decimal":
        arguments = f"({value['ColumnPrecision']},{value['ColumnScale']})"
    elif name in ("timestamp", "datetime", "time"):
        arguments = f"({value['ColumnScale']})" if "ColumnScale" in value else ""
    elif name in ("bit", "char", "varchar", "binary", "varbinary"):
        arguments = f"({value['ColumnPrecision']})"
    elements = tuple(value.get("ColumnElems", ()))
    if elements:
        arguments = "(" + ",".join("'" + element.replace("'", "''") + "'" for element in elements) + ")"
    return Column(
        value["ColumnName"],
        f"{name}{arguments} {sign}".strip(),
        value.get("ColumnNullable") != "false",
        value.get("ColumnIsPk") == "true",
        elements=elements,
        default=value.get("ColumnDefault"),
    )


_GO_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def _go_json(value: dict[str, Any]) -> bytes:
    """JSON as Go prints it. What Go escapes occurs only inside strings, so replacing it in the whole text is safe."""
    return json.dumps(value, indent=4, ensure_ascii=False).translate(_GO_ESCAPES).encode("utf-8", "surrogatepass")
