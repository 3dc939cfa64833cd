"""What a statement leaves to its session, said in its own words: the tokens of a statement, some of them replaced.

A session without strict mode gives a text or blob to whoever asks for a VARCHAR or VARBINARY that is too long for a row; a
strict one refuses. `CHARACTER SET DEFAULT` is the charset of the session's database. A table that a foreign key names
without a database is in that of its own table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.schema.ddl.table_body import is_key_or_check
from penstock.schema.ddl.tokens import NAME, SYMBOL, WORD, Token, TokenReader, Unreadable, split_commas
from penstock.schema.ddl.types import read_type
from penstock.schema.model import BLOB_TYPES, TEXT_TYPES, Column
from penstock.schema.quoting import quoted_name

_VARYING = ("varchar", "varbinary")


def by_name(columns: Sequence[Column]) -> dict[str, Column]:
    return {column.name.lower(): column for column in columns}


def resolved(
    tokens: Sequence[Token], schema: str, charset: str | None, types: Mapping[int, tuple[int, str]] | None = None
) -> list[Token]:
    """The tokens, with `schema` before names of referenced tables that name no database, `charset` where the default is
    asked for, and other types: `types` has where the last token of each ends, and what to write for it, by where its first
    one starts."""
    made: list[Token] = []
    skip_to = 0
    for at, token in enumerate(tokens):
        if token.start < skip_to:
            continue
        found = (types or {}).get(token.start)
        if found is not None:
            skip_to = found[0]
            made.append(Token(WORD, found[1], found[1].upper(), token.start, skip_to))
        elif _is_unqualified(tokens, at):
            made.append(Token(WORD, quoted_name(schema, token.text), "", token.start, token.end))
        elif charset is not None and token.upper == "DEFAULT" and _follows_charset(tokens[:at]):
            made.append(Token(WORD, charset, charset.upper(), token.start, token.end))
        else:
            made.append(token)
    return made


def _is_unqualified(tokens: Sequence[Token], at: int) -> bool:
    """Whether the token is the name of a table that a foreign key refers to, without its database."""
    if at == 0 or tokens[at - 1].upper != "REFERENCES" or tokens[at].kind not in (WORD, NAME):
        return False
    return at + 1 == len(tokens) or tokens[at + 1].kind != SYMBOL or tokens[at + 1].text != "."


def _follows_charset(before: Sequence[Token]) -> bool:
    words = [token.upper for token in before[-3:] if token.text != "="]
    return words[-1:] == ["CHARSET"] or words[-2:] in (["CHARACTER", "SET"], ["CHAR", "SET"])


def body_types(sql: str, body: list[Token], sql_mode: int, columns: Mapping[str, Column]) -> dict[int, tuple[int, str]]:
    """Types of the definitions in `body`, what stands between the parentheses of CREATE TABLE, that became others."""
    found: dict[int, tuple[int, str]] = {}
    for part in split_commas(body):
        reader = TokenReader(sql, part)
        if not is_key_or_check(reader):
            found.update(_other_type(reader, sql_mode, columns))
    return found


def clause_types(reader: TokenReader, sql_mode: int, columns: Mapping[str, Column]) -> dict[int, tuple[int, str]]:
    """The same of one clause of ALTER TABLE."""
    reader = TokenReader(reader.sql, reader.tokens)
    verb = reader.any_word("ADD", "MODIFY", "CHANGE")
    if not verb:
        return {}
    is_column = reader.word("COLUMN")
    if verb == "ADD":
        if not is_column and is_key_or_check(reader):
            return {}
        reader.word("IF", "NOT", "EXISTS")
        if reader.sees("("):
            return body_types(reader.sql, reader.inside(), sql_mode, columns)
    else:
        reader.word("IF", "EXISTS")
        if verb == "CHANGE":
            reader.name()
    return dict(_other_type(reader, sql_mode, columns))


def _other_type(
    reader: TokenReader, sql_mode: int, columns: Mapping[str, Column]
) -> Iterator[tuple[int, tuple[int, str]]]:
    try:
        column = columns.get(reader.name().lower())
        first = reader.now
        asked = read_type(reader, sql_mode)
    except Unreadable:
        return  # no definition: PERIOD FOR, PARTITION
    if column is None or asked.base not in _VARYING or column.base_type not in TEXT_TYPES | BLOB_TYPES:
        return
    size = column.base_type.removesuffix("text").removesuffix("blob")
    kind = size + ("text" if asked.base == "varchar" else "blob")
    national = f" CHARACTER SET {asked.charset}" if asked.charset else ""
    yield first.start, (reader.tokens[reader.at - 1].end, kind + national)


def outgrown(before: Sequence[Column], after: Sequence[Column]) -> list[Column]:
    """Columns that were VARCHAR and are a text now, of the same name."""
    was = by_name(before)
    return [
        column
        for column in after
        if column.base_type in TEXT_TYPES
        and (old := was.get(column.name.lower())) is not None
        and old.base_type == "varchar"
    ]
