"""In which columns the files of a table may not have what the table holds, because a statement filled them. Where it is not
certain that a column kept its values, it counts as filled."""

from __future__ import annotations

from penstock.schema.changes import SchemaChange
from penstock.schema.ddl.session import Statement
from penstock.schema.ddl.tokens import Unreadable
from penstock.schema.kept_values import keeps_values, made_anew


def filled_columns(change: SchemaChange, gone: frozenset[str]) -> frozenset[str]:
    """The columns in which rows that were there may have got values that no change has, in lower case. `gone`: columns that
    the table had before and lost, whose values are still in its files."""
    before, after = change.before, change.table
    if before is None:
        return frozenset()
    old = {column.name.lower(): column for column in before.columns}
    new = {column.name.lower(): column for column in after.columns}
    renamed = bool(old.keys() - new.keys())
    filled = {
        name
        for name, column in new.items()
        if (
            not keeps_values(old[name], column)
            if name in old
            else renamed or name in gone or column.default is not None or not column.nullable
        )
    }
    return frozenset(filled | (_made_anew(change.statement) & new.keys()))


def _made_anew(statement: Statement | None) -> set[str]:
    try:
        return set() if statement is None else made_anew(statement.tokens)
    except Unreadable:
        return set()
