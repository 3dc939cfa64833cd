"""Which tables a statement may touch that nobody understands: those that it names."""

from __future__ import annotations

import re

from penstock.schema.catalog import Catalog
from penstock.schema.ddl.session import Statement
from penstock.schema.ddl.tokens import NAME, STRING, WORD, Token, TokenReader, Unreadable
from penstock.schema.model import TableSchema

_LOST = "\N{REPLACEMENT CHARACTER}"


def tables_touched(statement: Statement, catalog: Catalog) -> list[TableSchema]:
    """The known tables that the statement names, alone or with their database; all of a database that it names alone.

    If the text cannot be cut into tokens, every known table whose name occurs in it. If characters of it are lost, so
    that names cannot be told, and none is found: every known table.
    """
    try:
        tokens = statement.tokens
    except Unreadable:
        return _in_text(statement, catalog)
    touched = _named(tokens, statement.schema, catalog)
    if not touched and _LOST in statement.sql:
        return list(catalog.tables())
    return touched


def _named(tokens: list[Token], schema: str, catalog: Catalog) -> list[TableSchema]:
    found: dict[str, TableSchema] = {}
    alone: set[str] = set()
    reader = TokenReader("", tokens)
    while not reader.done:
        token = reader.next()
        if token.kind not in (WORD, NAME, STRING):
            continue
        if reader.sees(".") and reader.ahead().kind in (WORD, NAME, STRING):
            reader.next()
            table = catalog.find(token.text, reader.next().text)
        else:
            alone.add(token.text.lower())
            table = catalog.find(schema, token.text)
        if table is not None:
            found[table.name] = table
    if not found:
        found = {table.name: table for table in catalog.tables() if table.schema.lower() in alone}
    return list(found.values())


def _in_text(statement: Statement, catalog: Catalog) -> list[TableSchema]:
    text = statement.sql.lower()
    found = [t for t in catalog.tables() if re.search(rf"(?<!\w){re.escape(t.table.lower())}(?!\w)", text)]
    if not found and _LOST in text:
        return list(catalog.tables())
    return found
