"""What a table looks like at one point of the log. Immutable; its version is the commit_ts of the DDL that made it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

# Families of MySQL's column types, by the names that `Column.base_type` gives: synonyms are resolved already.
INTEGER_TYPES = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
TEXT_TYPES = frozenset({"tinytext", "text", "mediumtext", "longtext"})
CHARACTER_TYPES = frozenset({"char", "varchar"}) | TEXT_TYPES
BLOB_TYPES = frozenset({"tinyblob", "blob", "mediumblob", "longblob"})
BINARY_TYPES = frozenset({"binary", "varbinary"}) | BLOB_TYPES
SPATIAL_TYPES = frozenset(
    {
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
    }
)


class DdlType(IntEnum):
    """The numbers that TiCDC's schema files use for `Type`."""

    NONE = 0
    CREATE_SCHEMA = 1
    DROP_SCHEMA = 2
    CREATE_TABLE = 3
    DROP_TABLE = 4
    ADD_COLUMN = 5
    DROP_COLUMN = 6


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `mysql_type` is lower case and complete, as SHOW CREATE TABLE prints it: `int(10) unsigned`."""

    name: str
    mysql_type: str
    nullable: bool = True
    primary_key: bool = False
    charset: str | None = None
    elements: tuple[str, ...] = ()
    default: str | None = None

    @property
    def base_type(self) -> str:
        """The first word of the type: `int`, `varchar`, `double`."""
        return self.mysql_type.partition("(")[0].partition(" ")[0]

    @property
    def unsigned(self) -> bool:
        return " unsigned" in self.mysql_type

    @property
    def arguments(self) -> tuple[int, ...]:
        """The numbers between the parentheses: `decimal(10,2)` gives `(10, 2)`; empty for enum and set."""
        if self.elements or "(" not in self.mysql_type:
            return ()
        inside = self.mysql_type.partition("(")[2].partition(")")[0]
        return tuple(int(part) for part in inside.split(","))


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table from `version` (the commit_ts of its DDL) on. `columns` is empty once the table is dropped."""

    schema: str
    table: str
    version: int
    columns: tuple[Column, ...]
    query: str = ""
    ddl_type: DdlType = DdlType.NONE
    comment: str = field(default="", compare=False)
    charset: str | None = None  # the table's default, for columns added later

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def primary_key(self) -> tuple[int, ...]:
        """Ordinals of the key's columns, in column order."""
        return tuple(i for i, column in enumerate(self.columns) if column.primary_key)

    @property
    def dropped(self) -> bool:
        return self.ddl_type is DdlType.DROP_TABLE

    def to_json(self) -> str:
        value = asdict(self)
        value["ddl_type"] = int(self.ddl_type)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> TableSchema:
        value: dict[str, Any] = json.loads(text)
        columns = tuple(Column(**{**c, "elements": tuple(c["elements"])}) for c in value.pop("columns"))
        return cls(**{**value, "columns": columns, "ddl_type": DdlType(value["ddl_type"])})
