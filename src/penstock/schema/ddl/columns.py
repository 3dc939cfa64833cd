"""Column definitions of CREATE and ALTER TABLE → `Column`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.schema.ddl.tokens import NAME, NUMBER, STRING, SYMBOL, WORD, Token, TokenReader, Unreadable, split_commas
from penstock.schema.ddl.types import (
    WITH_CHARSET,
    Spelled,
    charset_name,
    collation_charset,
    read_type,
    string_value,
    type_text,
)
from penstock.schema.model import Column


@dataclass(frozen=True)
class Defaults:
    """What a definition takes from outside: the table's charset and the session's settings."""

    charset: str
    database_charset: str
    sql_mode: int = 0
    converts_to: str | None = None  # CONVERT TO CHARACTER SET in the same statement: whatever the column says
    explicit_timestamps: bool = True  # off: TIMESTAMP without NULL is NOT NULL
    json_is_text: bool = True  # MariaDB: JSON is a longtext in utf8mb4


@dataclass(frozen=True)
class ColumnDefinition:
    """A column, and where ALTER TABLE puts it: first, after the column `after`, or where it is or comes."""

    column: Column
    primary_key: bool = False
    first: bool = False
    after: str | None = None


@dataclass
class _Attributes:
    nullable: bool | None = None
    primary_key: bool = False
    default: str | None = None
    computed: bool = False
    first: bool = False
    after: str | None = None
    collation: str | None = None


def read_column(reader: TokenReader, defaults: Defaults) -> ColumnDefinition:
    """Takes `name type attributes…`, up to the end of the reader's tokens or a partition clause."""
    name = reader.name()
    spelled = read_type(reader, defaults.sql_mode)
    if spelled.base == "json" and defaults.json_is_text:
        spelled.base, spelled.charset = "longtext", "utf8mb4"
    attributes = _Attributes()
    while not reader.done and not _at_partitions(reader):
        _read_attribute(reader, spelled, attributes)
    charset: str | None = None
    if spelled.base in WITH_CHARSET:
        charset = charset_name(spelled.charset or attributes.collation or defaults.charset, defaults.charset)
        if defaults.converts_to is not None and charset != "binary" and not spelled.byte:
            charset = defaults.converts_to
    mysql_type, charset = type_text(spelled, charset)
    nullable = attributes.nullable
    if nullable is None:
        nullable = not (spelled.serial or (spelled.base == "timestamp" and not defaults.explicit_timestamps))
    column = Column(
        name,
        mysql_type,
        nullable=nullable,
        charset=charset,
        elements=spelled.elements,
        default=attributes.default,
        computed=attributes.computed,
    )
    return ColumnDefinition(column, attributes.primary_key, attributes.first, attributes.after)


def _at_partitions(reader: TokenReader) -> bool:
    upper, following = reader.now.upper, reader.ahead().upper
    return (upper == "PARTITION" and following == "BY") or (upper == "REMOVE" and following == "PARTITIONING")


def _read_attribute(reader: TokenReader, spelled: Spelled, attributes: _Attributes) -> None:
    """Takes one attribute; passes over what does not change the shape of the table."""
    if reader.word("UNSIGNED"):
        spelled.unsigned = True
    elif reader.word("ZEROFILL"):
        spelled.unsigned = spelled.zerofill = True
    elif takes_charset(reader):
        reader.symbol("=")
        spelled.charset = charset_name(_name_or_string(reader))
    elif reader.word("COLLATE"):
        reader.symbol("=")
        attributes.collation = collation_charset(_name_or_string(reader)) or attributes.collation
    elif reader.word("ASCII"):
        spelled.charset = "latin1"
    elif reader.word("UNICODE"):
        spelled.charset = "ucs2"
    elif reader.word("BYTE"):
        spelled.byte = True
    elif reader.word("NOT", "NULL"):
        attributes.nullable = False
    elif reader.word("NULL"):
        attributes.nullable = True
    elif reader.word("SERIAL", "DEFAULT", "VALUE"):
        attributes.nullable = False
    elif reader.word("PRIMARY"):
        reader.word("KEY")
        attributes.primary_key = True
    elif reader.word("UNIQUE"):
        reader.word("KEY")
    elif reader.word("KEY"):
        attributes.primary_key = True
    elif reader.word("DEFAULT"):
        attributes.default = read_default(reader)
        attributes.computed = is_computed(reader)
    elif reader.word("ON", "UPDATE"):
        reader.next()
        if reader.sees("("):
            reader.inside()
    elif reader.word("REFERENCES"):
        _skip_reference(reader)
    elif reader.word("FIRST"):
        attributes.first = True
    elif reader.word("AFTER"):
        attributes.after = reader.name()
    elif (
        reader.word("COMMENT")
        or reader.any_word("COLUMN_FORMAT", "STORAGE", "ENGINE_ATTRIBUTE")
        or reader.word("SECONDARY_ENGINE_ATTRIBUTE")
        or reader.any_word("SRID", "REF_SYSTEM_ID")
    ):
        reader.symbol("=")
        reader.next()
    elif reader.word("WITH", "SYSTEM", "VERSIONING") or reader.word("WITHOUT", "SYSTEM", "VERSIONING"):
        raise versioned()
    elif reader.any_word("AS", "GENERATED"):
        reader.word("ALWAYS")
        reader.word("AS")
        if reader.word("ROW"):
            raise versioned()
    elif reader.sees("("):
        reader.inside()
    else:
        reader.next()


def versioned() -> Unreadable:
    return Unreadable("a system-versioned table")


def takes_charset(reader: TokenReader) -> bool:
    """Takes `CHARSET`, `CHARACTER SET` or `CHAR SET`."""
    return reader.word("CHARSET") or reader.word("CHARACTER", "SET") or reader.word("CHAR", "SET")


def _name_or_string(reader: TokenReader) -> str:
    return reader.next().text if reader.now.kind == STRING else reader.name()


def _skip_reference(reader: TokenReader) -> None:
    reader.qualified()
    if reader.sees("("):
        reader.inside()
    while True:
        if reader.word("MATCH"):
            reader.next()
        elif reader.word("ON", "DELETE") or reader.word("ON", "UPDATE"):
            if not (reader.word("SET", "NULL") or reader.word("SET", "DEFAULT") or reader.word("NO", "ACTION")):
                reader.next()
        else:
            return


def read_default(reader: TokenReader) -> str | None:
    """Takes a default value; gives its text, None for NULL. An expression keeps its spelling."""
    token = reader.now
    if token.kind == SYMBOL and token.text == "(":
        reader.inside()
        return reader.sql[token.start : reader.tokens[reader.at - 1].end]
    reader.next()
    if token.kind == SYMBOL and token.text in "+-":
        number = reader.next()
        if number.kind != NUMBER:
            reader.at -= 1
            raise reader.unreadable()
        return number.text if token.text == "+" else f"-{number.text}"
    if token.kind in (STRING, NUMBER):
        return token.text + _more_strings(reader) if token.kind == STRING else token.text
    if token.kind == WORD:
        return _default_word(token, reader)
    if token.kind == NAME:  # `name`() is a function, `name` a column
        if reader.sees("("):
            reader.inside()
        return reader.sql[token.start : reader.tokens[reader.at - 1].end]
    reader.at -= 1
    raise reader.unreadable()


def is_computed(reader: TokenReader) -> bool:
    """Whether the default that was just taken is an expression: only those end in a parenthesis."""
    last = reader.tokens[reader.at - 1]
    return last.kind == SYMBOL and last.text == ")"


def _more_strings(reader: TokenReader) -> str:
    """Strings that follow each other are one."""
    found = ""
    while reader.now.kind == STRING:
        found += reader.next().text
    return found


def _default_word(token: Token, reader: TokenReader) -> str | None:
    follows = reader.now
    if follows.kind == STRING and (token.text.startswith("_") or token.upper in ("N", "DATE", "TIME", "TIMESTAMP")):
        reader.next()  # _utf8mb4'x', N'x', DATE '2020-01-01'
        return follows.text + _more_strings(reader)
    if follows.kind == STRING and token.upper in ("B", "X"):
        reader.next()
        return f"{token.upper.lower()}'{follows.text}'" if token.upper == "B" else string_value([token, follows])
    if follows.kind == SYMBOL and follows.text == "(":
        reader.inside()
        return reader.sql[token.start : reader.tokens[reader.at - 1].end]
    if token.upper == "NEXT" and reader.word("VALUE", "FOR"):
        reader.qualified()
        return reader.sql[token.start : reader.tokens[reader.at - 1].end]
    if token.upper in ("TRUE", "FALSE"):
        return "1" if token.upper == "TRUE" else "0"
    return None if token.upper == "NULL" else token.text


def key_columns(inside: list[Token]) -> list[str]:
    """The column names of `(a, b(10) DESC)`. A period (`p WITHOUT OVERLAPS`) is none."""
    return [
        part[0].text
        for part in split_commas(inside)
        if part and part[0].kind in (WORD, NAME) and not (len(part) > 1 and part[1].upper == "WITHOUT")
    ]
