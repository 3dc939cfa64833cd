"""What a sink tells its readers of a DDL: a statement for each table that it changes, which they can run as it is.

A statement of the source may name several tables, in words that only its session understands. Each table gets a
statement of its own, fully qualified. Tables that trade names or rows cannot be changed one by one: the first of them has
the statement for all, and the others none. So the first one must be at the sink before the others.

| the DDL | its table's statement |
|---|---|
| CREATE TABLE, ALTER TABLE, CREATE and DROP INDEX | the source's own, spelled anew |
| CREATE TABLE … LIKE | the same; made from the columns if the sink does not have the model |
| DROP TABLE a, b | one DROP TABLE each |
| RENAME TABLE, ALTER TABLE … RENAME | RENAME TABLE, with the new name; none with the old one |
| EXCHANGE PARTITION | the source's own with the partitioned table; none with the other |
| of whole databases | made anew |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.schema.ddl.spelling import Spelling, partitioning, spelled
from penstock.schema.ddl.tokens import TokenReader, Unreadable, split_commas
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.schema.statements import (
    alter_database,
    alter_table,
    create_database,
    create_table,
    drop_database,
    drop_table,
    groups_of,
    rename_tables,
    truncate_table,
)

if TYPE_CHECKING:
    from penstock.schema.changes import SchemaChange  # with it comes the decoder, which delivery does not need

Name = tuple[str, str]
Wanted = Callable[[str, str], bool]


def forwarded(change: SchemaChange, wanted: Wanted) -> TableSchema:
    """The version that the change makes, with the statement and type that a reader of the sink gets.

    An empty statement means that there is nothing to run. A name that went elsewhere by a rename stays of kind RENAME
    without columns. Kind UNKNOWN with a reason: the table is parked; if it has columns, no statement can tell a reader
    what happened to it.
    """
    table = change.table
    if table.parked or change.ready:
        return table
    try:
        query, kind = _Forwarding(change, wanted).statement()
    except Unreadable as error:
        return replace(table, ddl_type=DdlType.UNKNOWN, reason=error.message)
    return replace(table, query=query, ddl_type=kind)


def has_no_file(told: TableSchema) -> bool:
    """Whether a version has no schema file: a name that a rename left. The statement is with the new name."""
    return told.kind is ChangeKind.RENAME and not told.columns


def without_statement(table: TableSchema, *, first: bool) -> TableSchema:
    """A version that rows came with, and no DDL: a table of the start, or a shape that a table map told. `first`: it is
    the table's first version at the sink, so that its readers have to create it."""
    if first and table.columns:
        return replace(table, query=create_table(table) + partitioning(table.query), ddl_type=DdlType.CREATE_TABLE)
    return replace(table, query="", ddl_type=DdlType.NONE)


class _Forwarding:
    def __init__(self, change: SchemaChange, wanted: Wanted) -> None:
        self.change = change
        self.table = change.table
        self.name: Name = (change.table.schema, change.table.table)
        self.wanted = wanted
        self.others = {one.name: one for one in change.together}

    def statement(self) -> tuple[str, DdlType]:
        table, kind = self.table, self.table.ddl_type
        if not table.table:
            return self._of_database(), kind
        if kind is DdlType.RENAME_TABLE:
            return self._renamed() if table.columns else self._gone()
        if kind is DdlType.DROP_TABLE:
            return drop_table(self.name), kind
        if kind is DdlType.TRUNCATE_TABLE:
            return truncate_table(self.name), kind
        if kind is DdlType.CREATE_TABLE:
            return self._created(), kind
        if kind is DdlType.EXCHANGE_PARTITION:
            return self._exchanged(), kind
        return self._altered()

    def _of_database(self) -> str:
        schema, charset = self.table.schema, self.table.charset
        if self.table.kind is ChangeKind.DROP_DATABASE:
            return drop_database(schema)
        if self.table.kind is ChangeKind.ALTER_DATABASE and charset:
            return alter_database(schema, charset)
        return create_database(schema, charset)

    def _created(self) -> str:
        model = next((one for one in self.change.needed if one.name == self.table.other), None)
        if model is not None and not self.wanted(model.schema, model.table):
            model = None
        own = self._spelled(self.name, model)
        if own is not None:
            return own
        return self._made_anew()

    def _made_anew(self) -> str:
        """From the columns. A table that readers have by that name is another one."""
        made = create_table(self.table)
        is_there = self.change.before is not None
        return made.replace("CREATE TABLE IF NOT EXISTS", "CREATE OR REPLACE TABLE", 1) if is_there else made

    def _altered(self) -> tuple[str, DdlType]:
        table, before = self.table, self.change.before
        kind = DdlType.MODIFY_COLUMN if table.ddl_type is DdlType.NONE else table.ddl_type
        own = self._spelled(self.name)
        if own is not None:
            return own, kind
        if before is None:
            return create_table(table), DdlType.CREATE_TABLE
        names = {c.name.lower() for c in table.columns}
        names_before = {c.name.lower() for c in before.columns}
        if names - names_before and names_before - names:
            raise Unreadable("columns came and others went, in a session whose statements cannot be run elsewhere")
        made = alter_table(before, table)
        return (made, kind) if made is not None else ("", DdlType.NONE)

    def _exchanged(self) -> str:
        """The statement goes with the partitioned table. Both must be here: rows move from one to the other."""
        partner = self.others.get(self.table.other)
        if not self.table.other:
            partner = next((one for one in self.change.together if one.other == self.table.name), None)
        if partner is None or not self.wanted(partner.schema, partner.table):
            raise Unreadable("rows were exchanged with a table that this sink does not have")
        own = self._spelled(self.name) if self.table.other else ""
        if own is None:
            raise Unreadable("rows were exchanged, in a session whose statements cannot be run elsewhere")
        return own

    # -- renames ---------------------------------------------------------------------------------------------------

    def _gone(self) -> tuple[str, DdlType]:
        """The old name. Where the table went to a name that this sink does not take, it is gone for its readers."""
        went = self.others.get(self.table.other)
        if went is not None and went.columns and self.wanted(went.schema, went.table):
            return "", DdlType.RENAME_TABLE
        return drop_table(self.name), DdlType.DROP_TABLE

    def _renamed(self) -> tuple[str, DdlType]:
        """The new name. A table that came from a name that this sink does not take begins here, with its rows from now
        on."""
        origin = self._origin(self.table)
        moves = {
            came: (one.schema, one.table)
            for one in self.change.together
            if one.ddl_type is DdlType.RENAME_TABLE and one.columns and self.wanted(one.schema, one.table)
            if (came := self._origin(one)) is not None
        }
        if origin is None:
            # Readers run the statements of the two names in any order: what has not left the name yet must not be replaced.
            made = create_table(self.table) if self.name in moves else self._made_anew()
            return made, DdlType.CREATE_TABLE
        if self._is_altered_too():
            own = self._spelled(origin)
            if own is None:
                raise Unreadable("a table was renamed and altered at once, in a session whose statements cannot be run")
            return own, DdlType.MODIFY_COLUMN
        group = next(group for group in groups_of(moves) if origin in group)
        if self.name != min(group.values()):
            return "", DdlType.NONE
        return rename_tables(group, self.table.version), DdlType.RENAME_TABLE

    def _origin(self, table: TableSchema) -> Name | None:
        """The name that the table had, if this sink takes it. Every name of a rename has a version of its own."""
        known = self.others.get(table.other)
        if known is None or not self.wanted(known.schema, known.table):
            return None
        return known.schema, known.table

    def _is_altered_too(self) -> bool:
        statement = self.change.statement
        if statement is None:
            came_from = next((one for one in self.change.needed if one.name == self.table.other), None)
            return came_from is not None and came_from.columns != self.table.columns
        reader = TokenReader(statement.sql, statement.tokens)
        return reader.word("ALTER") and len(split_commas(reader.rest())) > 1

    def _spelled(self, name: Name, model: TableSchema | None = None) -> str | None:
        statement = self.change.statement
        if statement is None:
            return None
        known = (self.change.before, *self.change.needed)
        before = next((one for one in known if one is not None and (one.schema, one.table) == name), None)
        return spelled(
            Spelling(statement, name, self.table, before, None if model is None else (model.schema, model.table))
        )
