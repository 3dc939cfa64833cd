"""What a table looks like at one point of the log. Immutable; its version is the commit_ts of the DDL that made it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from penstock.errors import BadInput

# Families of MySQL's column types, by the names that `Column.base_type` gives: synonyms are resolved already.
INTEGER_TYPES = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
TEXT_TYPES = frozenset({"tinytext", "text", "mediumtext", "longtext"})
CHARACTER_TYPES = frozenset({"char", "varchar"}) | TEXT_TYPES
BLOB_TYPES = frozenset({"tinyblob", "blob", "mediumblob", "longblob"})
BINARY_TYPES = frozenset({"binary", "varbinary"}) | BLOB_TYPES
ADDRESS_TYPES = frozenset({"inet4", "inet6", "uuid"})  # of MariaDB
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


class SchemaDrift(BadInput):
    """The schema that Penstock knows and what the server logs do not fit together."""


class ChangeKind(StrEnum):
    """What a DDL did to a table or database, as far as followers must tell one from the other."""

    NONE = "none"  # no DDL that was read: the tables of the start, a shape that a table map told, or whoever resumed it
    CREATE = "create"
    ALTER = "alter"
    RENAME = "rename"
    DROP = "drop"
    TRUNCATE = "truncate"  # rows of the table went, or came, without row events
    CREATE_DATABASE = "create-database"
    ALTER_DATABASE = "alter-database"
    DROP_DATABASE = "drop-database"
    UNKNOWN = "unknown"  # not understood: the shape from here on is not known, and the table is parked


class DdlType(IntEnum):
    """The numbers that TiCDC's schema files use for `Type`; and one of our own, below zero, that no file ever has."""

    UNKNOWN = -1
    NONE = 0
    CREATE_SCHEMA = 1
    DROP_SCHEMA = 2
    CREATE_TABLE = 3
    DROP_TABLE = 4
    ADD_COLUMN = 5
    DROP_COLUMN = 6
    ADD_INDEX = 7
    DROP_INDEX = 8
    ADD_FOREIGN_KEY = 9
    DROP_FOREIGN_KEY = 10
    TRUNCATE_TABLE = 11
    MODIFY_COLUMN = 12
    RENAME_TABLE = 14
    SET_DEFAULT = 15
    RENAME_INDEX = 18
    ADD_PARTITION = 19
    DROP_PARTITION = 20
    MODIFY_TABLE_CHARSET = 22
    TRUNCATE_PARTITION = 23
    MODIFY_SCHEMA_CHARSET = 26
    ADD_PRIMARY_KEY = 32
    DROP_PRIMARY_KEY = 33
    CREATE_SEQUENCE = 34
    EXCHANGE_PARTITION = 42
    REORGANIZE_PARTITION = 64
    ALTER_PARTITIONING = 71
    REMOVE_PARTITIONING = 72

    @property
    def kind(self) -> ChangeKind:
        return _KINDS.get(self, ChangeKind.ALTER)


_KINDS = {
    DdlType.UNKNOWN: ChangeKind.UNKNOWN,
    DdlType.NONE: ChangeKind.NONE,
    DdlType.CREATE_SCHEMA: ChangeKind.CREATE_DATABASE,
    DdlType.DROP_SCHEMA: ChangeKind.DROP_DATABASE,
    DdlType.MODIFY_SCHEMA_CHARSET: ChangeKind.ALTER_DATABASE,
    DdlType.CREATE_TABLE: ChangeKind.CREATE,
    DdlType.CREATE_SEQUENCE: ChangeKind.CREATE,
    DdlType.DROP_TABLE: ChangeKind.DROP,
    DdlType.RENAME_TABLE: ChangeKind.RENAME,
    DdlType.TRUNCATE_TABLE: ChangeKind.TRUNCATE,
    DdlType.DROP_PARTITION: ChangeKind.TRUNCATE,
    DdlType.TRUNCATE_PARTITION: ChangeKind.TRUNCATE,
    DdlType.EXCHANGE_PARTITION: ChangeKind.TRUNCATE,
}


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
    computed: bool = field(default=False, compare=False)  # the default is an expression, and not the text of a value

    @property
    def base_type(self) -> str:
        """The first word of the type: `int`, `varchar`, `double`."""
        return self.mysql_type.partition("(")[0].partition(" ")[0]

    @property
    def plain_type(self) -> str:
        """The type without what only some ways to learn of a table tell: display widths, zerofill, the kind of a geometry. So
        it is the same from a statement, from SHOW CREATE TABLE of any server, and from a table map."""
        base = self.base_type
        if base in SPATIAL_TYPES:
            return "geometry"
        if base in INTEGER_TYPES or base in ("float", "double", "year"):
            return f"{base} unsigned" if self.unsigned and base != "year" else base
        return self.mysql_type.removesuffix(" zerofill")

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
    """A table under one name from `version` (the commit_ts of its DDL) on. A database has an empty table name.

    `columns` is empty if no rows of it can be read from here on: the name was dropped, renamed away, or parked; or it
    is a sequence, whose rows are nobody's.
    """

    schema: str
    table: str
    version: int
    columns: tuple[Column, ...]
    query: str = ""
    ddl_type: DdlType = DdlType.NONE
    comment: str = field(default="", compare=False)
    charset: str | None = None  # the default for columns added later; of a database, for tables made later
    other: str = (
        ""  # of a rename: the name before, or that it went to; of an exchange: the other table; of a copy: the model
    )
    reason: str = ""  # why the table is parked

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells this version from all others."""
        return self.schema, self.table, self.version

    @property
    def kind(self) -> ChangeKind:
        """What the DDL that made this version did."""
        return self.ddl_type.kind

    @property
    def primary_key(self) -> tuple[int, ...]:
        """Ordinals of the key's columns, in column order."""
        return tuple(i for i, column in enumerate(self.columns) if column.primary_key)

    def keeps_key_of(self, before: TableSchema) -> bool:
        """Whether the columns of the primary key are, each of them, the same as before the statement that made this version:
        not of a like definition only. For the version in force to which the statement was applied."""
        key = [column for column in before.columns if column.primary_key]
        return len(self.primary_key) == len(key) and all(any(one is kept for one in self.columns) for kept in key)

    @property
    def dropped(self) -> bool:
        """Whether the name stands for no table any more."""
        return not self.columns and self.kind in (ChangeKind.DROP, ChangeKind.RENAME, ChangeKind.DROP_DATABASE)

    @property
    def follows(self) -> bool:
        """Whether the statement is another table's: of the new name where this one was left by a rename, of the partitioned
        table where rows were exchanged."""
        if self.ddl_type is DdlType.RENAME_TABLE:
            return not self.columns
        return self.ddl_type is DdlType.EXCHANGE_PARTITION and not self.other

    @property
    def parked(self) -> bool:
        """Whether a statement came that nobody understood: rows after it cannot be read, and must be kept."""
        return self.kind is ChangeKind.UNKNOWN

    @property
    def is_sequence(self) -> bool:
        return self.ddl_type is DdlType.CREATE_SEQUENCE

    def to_json(self) -> str:
        # Not asdict, which copies every value: with thousands of tables that is most of the cost.
        value: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        value["columns"] = [{name: getattr(column, name) for name in column.__slots__} for column in self.columns]
        value["ddl_type"] = int(self.ddl_type)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> TableSchema:
        value: dict[str, Any] = json.loads(text)
        columns = tuple(Column(**{**c, "elements": tuple(c["elements"])}) for c in value.pop("columns"))
        return cls(**{**value, "columns": columns, "ddl_type": DdlType(value["ddl_type"])})
