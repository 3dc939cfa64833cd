"""Table maps and schemas, checked against each other.

`schema_from_table_map` makes the schema of a table whose CREATE was never seen from a table map with full metadata.
`complete_table_map` adds what a server leaves out of its table maps (signedness, charsets, names) from the schema in
force at that point of the log. It refuses a layout that does not match the schema: so a missed DDL is noticed.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.binlog.table_map import MapColumn, TableMap
from penstock.binlog.types import ColumnType as C
from penstock.errors import BadInput, NotSupported
from penstock.schema.ddl.types import bytes_a_character
from penstock.schema.model import (
    ADDRESS_TYPES,
    BLOB_TYPES,
    CHARACTER_TYPES,
    SPATIAL_TYPES,
    TEXT_TYPES,
    Column,
    SchemaDrift,
    TableSchema,
)
from penstock.schema.quoting import quoted_string

_BLOBS = frozenset({C.BLOB, C.TINY_BLOB, C.MEDIUM_BLOB, C.LONG_BLOB})
_TYPES: dict[str, frozenset[int]] = {
    "tinyint": frozenset({C.TINY}),
    "smallint": frozenset({C.SHORT}),
    "mediumint": frozenset({C.INT24}),
    "int": frozenset({C.LONG}),
    "bigint": frozenset({C.LONGLONG}),
    "float": frozenset({C.FLOAT}),
    "double": frozenset({C.DOUBLE}),
    "decimal": frozenset({C.NEWDECIMAL}),
    "bit": frozenset({C.BIT}),
    "year": frozenset({C.YEAR}),
    "date": frozenset({C.DATE, C.NEWDATE}),
    "time": frozenset({C.TIME, C.TIME2}),
    "datetime": frozenset({C.DATETIME, C.DATETIME2}),
    "timestamp": frozenset({C.TIMESTAMP, C.TIMESTAMP2}),
    "enum": frozenset({C.ENUM}),
    "set": frozenset({C.SET}),
    "char": frozenset({C.STRING}),
    "binary": frozenset({C.STRING}),
    "varchar": frozenset({C.VARCHAR, C.VAR_STRING, C.VARCHAR_COMPRESSED}),
    "varbinary": frozenset({C.VARCHAR, C.VAR_STRING, C.VARCHAR_COMPRESSED}),
    "json": frozenset({C.JSON}) | _BLOBS,
    "bytes": frozenset({C.STRING, C.VARCHAR, C.VAR_STRING, C.VARCHAR_COMPRESSED, C.BLOB_COMPRESSED}) | _BLOBS,
    "vector": frozenset({C.VECTOR, C.VARCHAR}),
    **dict.fromkeys(ADDRESS_TYPES, frozenset({C.STRING})),
    **dict.fromkeys(TEXT_TYPES | BLOB_TYPES, _BLOBS | {C.BLOB_COMPRESSED}),
    **dict.fromkeys(SPATIAL_TYPES, frozenset({C.GEOMETRY})),
}
_UNSIGNED_MATTERS = frozenset({C.TINY, C.SHORT, C.INT24, C.LONG, C.LONGLONG})
_OLD_TEMPORAL = frozenset({C.TIME, C.DATETIME, C.TIMESTAMP})
_NEW_TEMPORAL = frozenset({C.TIME2, C.DATETIME2, C.TIMESTAMP2})


_MISSED_DDL = "a DDL was missed; leave the table out (source.tables.exclude), or start with a new state_dir"


def is_readable(column: Column) -> bool:
    """Whether rows with a column of this type can be read."""
    return column.base_type in _TYPES


def complete_table_map(table_map: TableMap, schema: TableSchema) -> TableMap:
    """The table map with signedness, charsets and names from `schema`. Raises `SchemaDrift` if the two do not match."""
    if len(table_map.columns) != len(schema.columns):
        raise SchemaDrift(
            f"schema drift: {schema.name} has {len(schema.columns)} columns, but the server logs "
            f"{len(table_map.columns)}",
            hint=_MISSED_DDL,
        )
    columns = tuple(
        _complete(mapped, column, schema) for mapped, column in zip(table_map.columns, schema.columns, strict=True)
    )
    return replace(table_map, columns=columns)


def _complete(mapped: MapColumn, column: Column, schema: TableSchema) -> MapColumn:
    base = column.base_type
    if base not in _TYPES:
        raise NotSupported(f"{schema.name}, column {column.name}: the type {column.mysql_type} is not supported yet")
    logged = C(mapped.type).name if mapped.type in C._value2member_map_ else str(mapped.type)
    if mapped.type not in _TYPES[base]:
        raise _drift(schema, column, f"the server logs {logged}")
    if mapped.name is not None and mapped.name.lower() != column.name.lower():
        raise _drift(schema, column, f"the server calls it {mapped.name}")
    arguments = column.arguments
    if mapped.type == C.NEWDECIMAL and arguments[:2] != (mapped.length, mapped.scale):
        raise _drift(schema, column, f"the server logs decimal({mapped.length},{mapped.scale})")
    fsp = arguments[0] if arguments else 0
    if mapped.type in _OLD_TEMPORAL:
        mapped = replace(mapped, length=fsp)  # MariaDB's form with digits of a second, which no table map says
    if base in ADDRESS_TYPES:
        mapped = replace(mapped, form=base)
    if mapped.type in _NEW_TEMPORAL and fsp != mapped.length:
        raise _drift(schema, column, f"the server logs {mapped.length} digits of a second")
    if mapped.type in _UNSIGNED_MATTERS and mapped.unsigned not in (None, column.unsigned):
        raise _drift(schema, column, f"the server says unsigned is {mapped.unsigned}")
    if mapped.elements is not None and mapped.elements != column.elements:
        raise _drift(schema, column, f"the server has the elements {', '.join(mapped.elements)}")
    charset = mapped.charset or column.charset
    if base == "bytes":
        charset = None  # and so without the padding of BINARY, which this may not be
    elif base in CHARACTER_TYPES:
        if charset in (None, "binary"):
            raise _drift(schema, column, "the server logs bytes")
    elif base == "json":
        charset = "utf8mb4"
    else:
        if mapped.charset not in (None, "binary") and mapped.type not in (C.ENUM, C.SET):
            raise _drift(schema, column, f"the server logs text in {mapped.charset}")
        charset = "binary"
    return replace(mapped, unsigned=column.unsigned, charset=charset, name=column.name, elements=column.elements)


def _drift(schema: TableSchema, column: Column, what: str) -> SchemaDrift:
    return SchemaDrift(
        f"schema drift: {schema.name}, column {column.name} is {column.mysql_type}, but {what}",
        hint=_MISSED_DDL,
    )


def schema_from_table_map(table_map: TableMap, version: int) -> TableSchema:
    """The schema that a table map with full metadata describes. Raises `BadInput` if the server writes less."""
    if not table_map.has_names or not table_map.has_signedness:
        raise BadInput(
            f"the columns of {table_map.name} are not known: its CREATE TABLE is not in the log, and its table maps "
            "carry no names",
            hint="set binlog_row_metadata=FULL on the server",
        )
    columns = tuple(_column(column, i, table_map) for i, column in enumerate(table_map.columns))
    return TableSchema(table_map.schema, table_map.table, version, columns)


def schema_without_names(table_map: TableMap, version: int) -> TableSchema:
    """What the rows after a table map have, as far as it says so: a column without a name is called `@1`, `@2`, …

    What it does not say is not guessed: an integer counts as signed, a string of unknown character set is `bytes`, an
    ENUM or SET of unknown elements has none. For those who look at a binlog: a log needs more than that.
    """
    columns = []
    for i, mapped in enumerate(table_map.columns):
        named = replace(mapped, name=mapped.name or f"@{i + 1}")
        if mapped.type in (C.ENUM, C.SET) and mapped.elements is None:
            columns.append(Column(str(named.name), C(mapped.type).name.lower(), nullable=mapped.nullable))
        elif mapped.type in _TYPES["bytes"] and mapped.charset is None:
            columns.append(Column(str(named.name), "bytes", nullable=mapped.nullable))
        else:
            columns.append(_column(named, i, table_map))
    return TableSchema(table_map.schema, table_map.table, version, tuple(columns))


def _column(mapped: MapColumn, i: int, table_map: TableMap) -> Column:
    text = mapped.type in (C.STRING, C.VARCHAR, C.VAR_STRING) or mapped.type in _BLOBS
    if text and mapped.charset is None:
        raise BadInput(
            f"{table_map.name}, column {mapped.name}: its character set is not known",
            hint="set binlog_row_metadata=FULL on the server",
        )
    charset = mapped.charset if mapped.charset != "binary" else None
    if mapped.type == C.JSON:
        charset = "utf8mb4"
    return Column(
        mapped.name or f"column_{i + 1}",
        _mysql_type(mapped),
        nullable=mapped.nullable,
        primary_key=mapped.primary_key,
        charset=charset,
        elements=mapped.elements or (),
    )


_PLAIN = {
    C.TINY: "tinyint",
    C.SHORT: "smallint",
    C.INT24: "mediumint",
    C.LONG: "int",
    C.LONGLONG: "bigint",
    C.FLOAT: "float",
    C.DOUBLE: "double",
    C.YEAR: "year",
    C.DATE: "date",
    C.NEWDATE: "date",
    C.TIME: "time",
    C.DATETIME: "datetime",
    C.TIMESTAMP: "timestamp",
    C.JSON: "json",
    C.GEOMETRY: "geometry",
    C.VECTOR: "vector",
}
_WITH_FSP = {C.TIME2: "time", C.DATETIME2: "datetime", C.TIMESTAMP2: "timestamp"}
_SIZES = {1: "tiny", 2: "", 3: "medium", 4: "long"}


def _mysql_type(mapped: MapColumn) -> str:
    kind = mapped.type
    binary = mapped.charset == "binary"
    unsigned = " unsigned" if mapped.unsigned and kind != C.YEAR else ""
    if kind in _PLAIN:
        return _PLAIN[C(kind)] + unsigned
    if kind == C.NEWDECIMAL:
        return f"decimal({mapped.length},{mapped.scale}){unsigned}"
    if kind in _WITH_FSP:
        return _WITH_FSP[C(kind)] + (f"({mapped.length})" if mapped.length else "")
    if kind == C.BIT:
        return f"bit({mapped.length})"
    if kind in (C.ENUM, C.SET):
        if mapped.elements is None:
            raise BadInput(f"column {mapped.name}: its elements are not known", hint="set binlog_row_metadata=FULL")
        quoted = ",".join(map(quoted_string, mapped.elements))
        return f"{'enum' if kind == C.ENUM else 'set'}({quoted})"
    if kind == C.STRING:
        return f"binary({mapped.length})" if binary else f"char({mapped.length // bytes_a_character(mapped.charset)})"
    if kind in (C.VARCHAR, C.VAR_STRING, C.VARCHAR_COMPRESSED):
        size = mapped.length // bytes_a_character(mapped.charset)
        return f"varbinary({mapped.length})" if binary else f"varchar({size})"
    if (kind in _BLOBS or kind == C.BLOB_COMPRESSED) and mapped.length in _SIZES:
        return _SIZES[mapped.length] + ("blob" if binary else "text")
    name = C(kind).name if kind in C._value2member_map_ else f"number {kind}"
    raise NotSupported(f"column {mapped.name}: the column type {name} is not supported")
