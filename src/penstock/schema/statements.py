"""Statements of our own, made from table schemas: fully qualified, for one table, such that any session can run them.

What a schema does not have is not in them: secondary indexes, partitions, generated columns, comments, collations
(`forwarding.py` adds the partitions of a table of the start). Where the source's own statement is known, it is spelled anew instead (`schema/ddl/spelling.py`) and keeps all that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.schema.ddl.types import bytes_a_character
from penstock.schema.model import BLOB_TYPES, CHARACTER_TYPES, INTEGER_TYPES, TEXT_TYPES, Column, TableSchema
from penstock.schema.quoting import quoted_name

Name = tuple[str, str]

# The text of a default is a number for these types, and in quotes for others.
_NUMERIC = INTEGER_TYPES | {"decimal", "float", "double", "year", "bit"}
_NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|b'[01]*'|0x[0-9a-fA-F]+")
_NOW = re.compile(r"(current_timestamp|now|localtime|localtimestamp)(\(\d*\))?", re.IGNORECASE)

# What InnoDB takes as a key at most.
_KEY_BYTES_MAX = 3072


def create_table(table: TableSchema) -> str:
    """Creates the table unless it is there."""
    parts = [_column(column) for column in table.columns]
    if _key(table):
        parts.append(_primary_key(table))
    charset = f" DEFAULT CHARACTER SET {table.charset}" if table.charset else ""
    return f"CREATE TABLE IF NOT EXISTS {quoted_name(table.schema, table.table)} ({', '.join(parts)}){charset}"


def drop_table(name: Name) -> str:
    return f"DROP TABLE IF EXISTS {quoted_name(*name)}"


def truncate_table(name: Name) -> str:
    return f"TRUNCATE TABLE {quoted_name(*name)}"


def create_database(schema: str, charset: str | None) -> str:
    return f"CREATE DATABASE IF NOT EXISTS {quoted_name(schema)}" + (f" CHARACTER SET {charset}" if charset else "")


def alter_database(schema: str, charset: str) -> str:
    return f"ALTER DATABASE {quoted_name(schema)} CHARACTER SET {charset}"


def drop_database(schema: str) -> str:
    return f"DROP DATABASE IF EXISTS {quoted_name(schema)}"


def alter_table(before: TableSchema, after: TableSchema) -> str | None:
    """Gives the table the columns of `after`; None if it has them. Columns are matched by name: of one that was renamed
    nothing is known here, so whoever may have renamed one must not ask."""
    old = {column.name.lower(): column for column in before.columns}
    new = {column.name.lower() for column in after.columns}
    clauses = [f"DROP COLUMN {quoted_name(column.name)}" for name, column in old.items() if name not in new]
    key_before, key_after = _key(before), _key(after)
    if key_before != key_after and key_before:
        clauses.append("DROP PRIMARY KEY")
    place = "FIRST"
    order = [column.name.lower() for column in before.columns if column.name.lower() in new]
    for at, column in enumerate(after.columns):
        known = old.get(column.name.lower())
        moved = order[at : at + 1] != [column.name.lower()]
        if known is None:
            order.insert(at, column.name.lower())
            clauses.append(f"ADD COLUMN {_column(column)} {place}")
        elif moved or _definition(known) != _definition(column):
            order.remove(column.name.lower())
            order.insert(at, column.name.lower())
            clauses.append(modify_column(column) + (f" {place}" if moved else ""))
        place = f"AFTER {quoted_name(column.name)}"
    if key_before != key_after and key_after:
        clauses.append(f"ADD {_primary_key(after)}")
    return f"ALTER TABLE {quoted_name(after.schema, after.table)} {', '.join(clauses)}" if clauses else None


def modify_column(column: Column) -> str:
    """The clause of ALTER TABLE that gives a column this definition."""
    return f"MODIFY COLUMN {_column(column)}"


def rename_tables(moves: Mapping[Name, Name], version: int) -> str:
    """Renames each key to its value, in one statement. A name that is both left and taken is left first; names that go
    round in a circle pass through one that carries `version`."""
    left = dict(moves)
    steps: list[tuple[Name, Name]] = []
    while left:
        free = sorted(old for old, new in left.items() if new not in left)
        if not free:
            old = min(left)
            aside = (old[0], f"_penstock_{version}")
            steps.append((old, aside))
            left[aside] = left.pop(old)
            continue
        steps += [(old, left.pop(old)) for old in free]
    return "RENAME TABLE " + ", ".join(f"{quoted_name(*old)} TO {quoted_name(*new)}" for old, new in steps)


def groups_of(moves: Mapping[Name, Name]) -> list[dict[Name, Name]]:
    """The moves that must be one statement, because they leave and take the same names."""
    groups: list[dict[Name, Name]] = []
    for old, new in sorted(moves.items()):
        linked = [group for group in groups if {old, new} & _names(group.items())]
        groups = [group for group in groups if group not in linked]
        groups.append({old: new, **{k: v for group in linked for k, v in group.items()}})
    return groups


def _names(pairs: Iterable[tuple[Name, Name]]) -> set[Name]:
    return {name for pair in pairs for name in pair}


def _key(table: TableSchema) -> list[str]:
    return [column.name.lower() for column in table.columns if column.primary_key]


def _primary_key(table: TableSchema) -> str:
    """The key's columns. How much of a long string is in it nobody knows here: as much as a key can hold. The source has no
    two rows that are the same in less."""
    columns = [column for column in table.columns if column.primary_key]
    sizes = {column.name: _key_bytes(column) for column in columns}
    short = {name: size for name, size in sizes.items() if size * len(columns) <= _KEY_BYTES_MAX}
    room = (_KEY_BYTES_MAX - sum(short.values())) // max(1, len(columns) - len(short))
    return f"PRIMARY KEY ({', '.join(_key_part(column, room if column.name not in short else None) for column in columns)})"


def _key_part(column: Column, room: int | None) -> str:
    prefix = "" if room is None else f"({room // bytes_a_character(column.charset)})"
    return quoted_name(column.name) + prefix


def _key_bytes(column: Column) -> int:
    """What a value takes in a key at most; too much for texts and blobs, which need a prefix."""
    base = column.base_type
    if base in TEXT_TYPES or base in BLOB_TYPES or base == "bytes":
        return _KEY_BYTES_MAX + 1
    if base in ("char", "varchar", "binary", "varbinary"):
        return (column.arguments or (1,))[0] * bytes_a_character(column.charset)
    return 8 if base != "decimal" else 32


def _column(column: Column) -> str:
    return f"{quoted_name(column.name)} {_definition(column)}"


def _definition(column: Column) -> str:
    kind = "longblob" if column.base_type == "bytes" else _escaped(column.mysql_type)
    charset = f" CHARACTER SET {column.charset}" if column.charset and _has_charset(column) else ""
    null = " NULL" if column.nullable else " NOT NULL"
    default = f" DEFAULT {default_text(column)}" if column.default is not None else ""
    return f"{kind}{charset}{null}{default}"


def _has_charset(column: Column) -> bool:
    return column.base_type in CHARACTER_TYPES or column.base_type in ("enum", "set")


def default_text(column: Column) -> str:
    """The default as a statement names it: a literal, or an expression."""
    text = column.default or ""
    base = column.base_type
    if base in _NUMERIC and _NUMBER.fullmatch(text):
        return text
    if base in ("timestamp", "datetime", "date", "time") and _NOW.fullmatch(text):
        return text
    if column.computed:
        return text if text.startswith("(") else f"({text})"
    return "'" + _escaped(text).replace("'", "''") + "'"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\")
