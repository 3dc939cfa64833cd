"""A reader of a sink: a catalog of its own that follows the statements that it is given, in a session without a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.schema.catalog import Catalog
from penstock.schema.changes import SchemaChange
from penstock.schema.ddl import Statement, apply_ddl
from penstock.schema.forwarding import forwarded
from penstock.schema.model import DdlType, TableSchema


def everything(_schema: str, _table: str) -> bool:
    return True


def forward(
    statement: Statement,
    catalog: Catalog,
    version: int = 42,
    wanted: Callable[[str, str], bool] = everything,
) -> list[TableSchema]:
    """What the sink is given for a statement; `catalog` is what is there before, and follows it."""
    made = sorted(apply_ddl(statement, catalog, version), key=lambda t: (t.follows, t.schema, t.table))
    before = [catalog.find(table.schema, table.table) for table in made]
    models = [one for one in catalog.tables() if one.name in {table.other for table in made}]
    needed = tuple(table for table in (*before, *models) if table is not None)
    found = [
        forwarded(SchemaChange(table, b"", version, was, statement, tuple(made), needed), wanted)
        for table, was in zip(made, before, strict=True)
        if wanted(table.schema, table.table) or not table.table
    ]
    for table in made:
        catalog.take(table)
    return found


class Mirror:
    """Runs what it is given and compares itself with the source's catalog."""

    def __init__(self, source: Catalog) -> None:
        self.source = source
        self.catalog = Catalog([*source.tables()])
        self.run: list[str] = []

    def follow(self, statement: Statement, version: int = 42) -> list[TableSchema]:
        given = forward(statement, self.source, version)
        self.take(given)
        return given

    def take(self, given: Sequence[TableSchema]) -> None:
        for one in given:
            assert not one.parked, (one.name, one.reason)
            if not one.query:
                continue
            self.run.append(one.query)
            made = apply_ddl(Statement(one.query), self.catalog, one.version)
            assert all(not table.parked for table in made), (one.query, made)
            for table in made:
                self.catalog.take(table)
        for table in self.source.tables():
            copy = self.catalog.find(table.schema, table.table)
            assert copy is not None, (table.name, self.run[-3:])
            assert copy.columns == table.columns, (self.run[-3:], copy, table)
            assert table.charset in (copy.charset, None), (self.run[-3:], copy, table)
        assert {t.name for t in self.catalog.tables()} == {t.name for t in self.source.tables()}, self.run[-3:]


def types_of(given: Sequence[TableSchema]) -> list[tuple[str, DdlType, str]]:
    return [(one.name, one.ddl_type, one.query) for one in given]
