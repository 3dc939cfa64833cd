"""What CREATE TABLE says after the table's name: columns, key, options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.schema.ddl.columns import ColumnDefinition, Defaults, key_columns, read_column, takes_charset, versioned
from penstock.schema.ddl.tokens import STRING, SYMBOL, Token, TokenReader, Unreadable, split_commas
from penstock.schema.ddl.types import charset_name, collation_charset
from penstock.schema.model import Column
from penstock.schema.parking import SELECTED_ROWS_MISSING

_ELEMENTS = frozenset(["PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK"])


@dataclass(frozen=True)
class TableBody:
    columns: tuple[Column, ...]
    charset: str
    sequence: bool = False


@dataclass(frozen=True)
class TableOptions:
    charset: str | None = None
    sequence: bool = False


def read_body(reader: TokenReader, defaults: Callable[[str | None], Defaults]) -> TableBody:
    """Takes `(columns and keys) options`. `defaults` gives what columns inherit from the table's own charset."""
    body = reader.inside()
    options = read_options(reader)
    inherited = defaults(options.charset)
    definitions: list[ColumnDefinition] = []
    key: list[str] = []
    not_null: list[str] = []
    for part in split_commas(body):
        if not part:
            raise reader.unreadable()
        inner = TokenReader(reader.sql, part)
        if is_key_or_check(inner):
            key = primary_key(inner) or key
        elif inner.word("PERIOD", "FOR"):
            not_null += period_columns(inner)
        else:
            definitions.append(read_column(inner, inherited))
    key += [d.column.name for d in definitions if d.primary_key]
    columns = with_key([d.column for d in definitions], key, not_null)
    return TableBody(columns, inherited.charset, options.sequence)


def is_key_or_check(reader: TokenReader) -> bool:
    """Whether an element between the parentheses of CREATE TABLE is no column. Columns of these names are quoted."""
    if reader.now.upper == "VECTOR":
        return reader.ahead().upper in ("INDEX", "KEY") or reader.ahead().text == "("
    return reader.now.upper in _ELEMENTS


def primary_key(reader: TokenReader) -> list[str]:
    """The columns of `[CONSTRAINT [name]] PRIMARY KEY [name] [USING x] (…)`; empty for other elements."""
    if reader.word("CONSTRAINT") and reader.now.upper != "PRIMARY":
        reader.next()
    if not reader.word("PRIMARY"):
        return []
    while not reader.done:
        if reader.sees("("):
            return key_columns(reader.inside())
        reader.next()
    raise reader.unreadable()


def period_columns(reader: TokenReader) -> list[str]:
    """The two columns of `PERIOD FOR name (start, end)`, which are NOT NULL; the words are taken already."""
    reader.word("IF", "NOT", "EXISTS")
    if reader.name().upper() == "SYSTEM_TIME":
        raise versioned()
    return key_columns(reader.inside())


def with_key(columns: Sequence[Column], key: Sequence[str], not_null: Sequence[str] = ()) -> tuple[Column, ...]:
    """The columns, those of the key marked. Columns of a key are never null. One that stays as it was is the same object."""
    names = {column.name.lower() for column in columns}
    wanted = {name.lower() for name in key}
    filled = wanted | {name.lower() for name in not_null}
    if not columns or filled - names:
        raise Unreadable("a table without columns, or with a key of columns that are not there")
    made: list[Column] = []
    for column in columns:
        name = column.name.lower()
        marked = replace(column, primary_key=name in wanted, nullable=column.nullable and name not in filled)
        made.append(column if marked == column else marked)
    return tuple(made)


def read_options(reader: TokenReader) -> TableOptions:
    """Takes the options after the columns, partitions too; all that matters here is the charset."""
    charset: str | None = None
    collation: str | None = None
    sequence = False
    while not reader.done:
        if takes_charset(reader):
            reader.symbol("=")
            name = value_of(reader)
            charset = None if name.upper() == "DEFAULT" else charset_name(name)
        elif reader.word("COLLATE"):
            reader.symbol("=")
            collation = collation_charset(value_of(reader)) or collation
        elif reader.word("WITH", "SYSTEM", "VERSIONING"):
            raise versioned()
        elif reader.word("SEQUENCE"):
            reader.symbol("=")
            sequence = value_of(reader) not in ("0", "")
        elif reader.word("START", "TRANSACTION"):
            pass  # MySQL's CREATE TABLE … SELECT: the rows follow as row events
        elif reader.any_word("SELECT", "VALUES", "REPLACE", "IGNORE", "AS", "TABLE", "WITH"):
            raise Unreadable(SELECTED_ROWS_MISSING)
        elif reader.word("PARTITION", "BY"):
            _skip_partitions(reader)
        elif reader.sees("("):
            reader.inside()
        elif reader.word("COMMENT") or reader.any_word("ENGINE", "TYPE", "CONNECTION", "COMPRESSION", "TABLESPACE"):
            reader.symbol("=")
            reader.next()  # a value that is a word must not be taken for an option
        else:
            reader.next()
    return TableOptions(charset or collation, sequence)


def _skip_partitions(reader: TokenReader) -> None:
    """Takes everything but a query, which would be `[AS | IGNORE | REPLACE] SELECT`."""
    while not reader.done and reader.now.upper not in ("SELECT", "AS", "IGNORE", "REPLACE"):
        if reader.sees("("):
            reader.inside()
        else:
            reader.next()


def value_of(reader: TokenReader) -> str:
    """Takes the value of an option."""
    token: Token = reader.next()
    if token.kind == SYMBOL and token.kind != STRING:
        raise reader.unreadable()
    return token.text
