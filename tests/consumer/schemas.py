"""Schema files: what a table looks like from a version on, and the DDL that made it so."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.consumer.violation import require, violated

_KEYS = ["Table", "Schema", "Version", "TableVersion", "Query", "Type", "TableColumns", "TableColumnsTotal"]
_COLUMN_KEYS = ["ColumnId", "ColumnName", "ColumnType", "ColumnDefault", "ColumnPrecision", "ColumnScale", "ColumnNullable", "ColumnIsPk", "ColumnElems"]  # fmt: skip
_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
CREATE_DATABASE, RENAME = 1, 14


@dataclass(frozen=True)
class Schema:
    path: Path
    schema: str
    table: str
    version: int
    query: str
    ddl_type: int
    columns: tuple[dict[str, Any], ...]

    @property
    def names(self) -> list[str]:
        return [column["ColumnName"] for column in self.columns]

    @property
    def key(self) -> list[str]:
        return [column["ColumnName"] for column in self.columns if column.get("ColumnIsPk") == "true"]


def read_schema(path: Path, schema: str, table: str, version: int, checksum: int) -> Schema:
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        violated("schema-json", path, str(error))
    require(isinstance(value, dict) and list(value) == _KEYS, "schema-json", path, f"keys {list(value)}")
    require(type(value["Type"]) is int and value["Version"] == 1, "schema-json", path, "Type or Version")
    columns = value["TableColumns"] or []
    require(value["TableColumnsTotal"] == len(columns), "schema-json", path, "TableColumnsTotal")
    for column in columns:
        known = [key for key in _COLUMN_KEYS if key in column]
        require(list(column) == known and {"ColumnName", "ColumnType"} <= set(known), "schema-json", path, str(column))
        require(column.get("ColumnNullable", "false") == "false", "schema-json", path, "ColumnNullable")
        require(column.get("ColumnIsPk", "true") == "true", "schema-json", path, "ColumnIsPk")
    require(value["TableVersion"] == version, "schema-version", path, f"TableVersion {value['TableVersion']}")
    require(
        (value["Schema"], value["Table"]) == (schema, table),
        "schema-names",
        path,
        f"{value['Schema']}.{value['Table']}",
    )
    found = checksum_of(value)
    require(found == checksum, "schema-checksum", path, f"{found:010d}")
    made = Schema(path, schema, table, version, value["Query"], value["Type"], tuple(columns))
    _check_query(made)
    return made


def checksum_of(value: dict[str, Any]) -> int:
    """CRC-32 of the definition without version, query and type, its columns sorted by name, as Go prints JSON."""
    columns = sorted(value["TableColumns"] or [], key=lambda column: column["ColumnName"].encode())
    definition = {"Table": value["Table"], "Schema": value["Schema"], "Version": 0, "TableColumns": columns, "TableColumnsTotal": len(columns)}  # fmt: skip
    return zlib.crc32(json.dumps(definition, indent=4, ensure_ascii=False).translate(_ESCAPES).encode())


def _check_query(schema: Schema) -> None:
    query = re.sub(r"/\*.*?\*/", " ", schema.query, flags=re.DOTALL).strip()
    if re.match(r"create\s+(or\s+replace\s+)?(database|schema)\b", query, re.IGNORECASE):
        require(schema.ddl_type == CREATE_DATABASE, "create-database", schema.path, f"Type {schema.ddl_type}")
    if schema.ddl_type == RENAME:
        require(re.match(r"rename\s+table\b", query, re.IGNORECASE), "rename", schema.path, schema.query)
