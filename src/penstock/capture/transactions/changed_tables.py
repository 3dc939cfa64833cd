"""Which tables a logged INSERT, UPDATE, DELETE, REPLACE or LOAD changes.

A server that logs statements instead of rows leaves nothing to follow, and what happens in tables that nobody follows
never ends a flow: so it matters which tables these are. Names that a statement only reads do not count.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.schema.ddl.tokens import NAME, WORD, TokenReader, Unreadable, tokens_of

_TOKENS_MAX = 5_000  # the tables stand before the values of a long statement
_MODIFIERS = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "HISTORY")
_JOINS = ("JOIN", "STRAIGHT_JOIN")
_AFTER_TABLE = frozenset(  # words that follow a table in a list of them, so they are no alias
    [
        "JOIN",
        "STRAIGHT_JOIN",
        "INNER",
        "LEFT",
        "RIGHT",
        "CROSS",
        "NATURAL",
        "FULL",
        "OUTER",
        "ON",
        "USING",
        "USE",
        "IGNORE",
        "FORCE",
        "SET",
        "WHERE",
        "ORDER",
        "LIMIT",
        "RETURNING",
        "FOR",
        "PARTITION",
    ]
)
_SUBQUERY = ("SELECT", "WITH", "VALUES", "TABLE")
_END_OF_TABLES = ("WHERE", "ORDER", "LIMIT", "RETURNING")


class Table(NamedTuple):
    """`schema` is None where the statement does not name it. `table` is empty where a routine of the schema changes what
    nobody knows."""

    schema: str | None
    table: str


def changed_tables(sql: str, sql_mode: int = 0) -> list[Table]:
    """Empty where it cannot be told."""
    try:
        tokens = tokens_of(sql, sql_mode, limit=_TOKENS_MAX)
        return _changed(TokenReader(sql, tokens), complete=len(tokens) <= _TOKENS_MAX)
    except Unreadable:
        return []


def _changed(reader: TokenReader, *, complete: bool) -> list[Table]:
    _pass_expressions(reader)
    verb = reader.next().upper
    while reader.any_word(*_MODIFIERS):
        pass
    if verb in ("INSERT", "REPLACE"):
        reader.word("INTO")
        return [Table(*reader.qualified())]
    if verb == "LOAD":
        while not reader.done:
            if reader.word("INTO", "TABLE"):
                return [Table(*reader.qualified())]
            reader.next()
        return []
    if verb in ("SELECT", "DO"):  # a function that changes tables: the server names its database
        return [Table(reader.qualified()[0], "")] if complete else []
    if not complete:
        return []
    return _updated(reader) if verb == "UPDATE" else _deleted(reader)


def _pass_expressions(reader: TokenReader) -> None:
    """WITH name AS (…), …: these are read."""
    if not reader.word("WITH"):
        return
    reader.word("RECURSIVE")
    while True:
        reader.name()
        if reader.sees("("):
            reader.inside()
        if not reader.word("AS"):
            raise reader.unreadable()
        reader.inside()
        if not reader.symbol(","):
            return


def _updated(reader: TokenReader) -> list[Table]:
    """Of several tables those whose columns are set; all of them where a column does not say whose it is."""
    tables = _references(reader, "SET")
    if len(set(tables.values())) == 1 or not reader.word("SET"):
        return list(tables.values())
    found = []
    while not reader.done and reader.now.upper not in _END_OF_TABLES:
        names = [reader.name()]
        while reader.symbol("."):
            names.append(reader.name())
        if len(names) == 1:
            return list(tables.values())
        found.append(_resolved(tables, names[:-1]))
        while not reader.done and not reader.sees(",") and reader.now.upper not in _END_OF_TABLES:
            if reader.sees("("):
                reader.inside()
            else:
                reader.next()
        reader.symbol(",")
    return found


def _deleted(reader: TokenReader) -> list[Table]:
    """DELETE FROM a …; DELETE a, b FROM …; DELETE FROM a, b USING …"""
    is_first = reader.word("FROM")
    named = [_named(reader)]
    while reader.symbol(","):
        named.append(_named(reader))
    if not reader.word("USING" if is_first else "FROM"):
        return [_resolved({}, one) for one in named]
    tables = _references(reader)
    return [_resolved(tables, one) for one in named]


def _named(reader: TokenReader) -> list[str]:
    """A table in the list of a DELETE: `a`, `a.*`, `s.a`, `s.a.*`."""
    names = [reader.name()]
    while reader.symbol("."):
        if reader.symbol("*"):
            break
        names.append(reader.name())
    return names


def _resolved(tables: dict[str, Table], names: list[str]) -> Table:
    """A name of the statement is an alias, or a table."""
    if len(names) == 1:
        return tables.get(names[0].lower(), Table(None, names[0]))
    return Table(names[-2], names[-1])


def _references(reader: TokenReader, *ends: str) -> dict[str, Table]:
    """The tables of a list or join, by alias or else by name; up to one of the words that end it."""
    found: dict[str, Table] = {}
    expected = True
    while not reader.done and reader.now.upper not in (*ends, *_END_OF_TABLES):
        if reader.sees("("):
            if not expected or reader.ahead().upper in _SUBQUERY:
                reader.inside()
                expected = False
            else:
                reader.next()
        elif reader.symbol(",") or reader.any_word(*_JOINS):
            expected = True
        elif expected and reader.now.kind in (WORD, NAME):
            table = Table(*reader.qualified())
            if reader.word("PARTITION"):
                reader.inside()
            has_alias = reader.word("AS") or reader.now.kind == NAME
            has_alias = has_alias or (reader.now.kind == WORD and reader.now.upper not in _AFTER_TABLE)
            found[(reader.name() if has_alias else table.table).lower()] = table
            expected = False
        else:
            reader.next()
    return found
