"""A logged statement, spelled so that it means the same in any session: names in backticks, strings in single quotes, the
table under its full name, no comments.

What a session's sql_mode makes of quotes and backslashes is resolved, and what else it decides (`resolved.py`). Everything
else is kept as it was written: indexes, partitions, defaults and options that the schema model does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.schema.ddl.resolved import body_types, by_name, clause_types, outgrown, resolved
from penstock.schema.ddl.session import Statement
from penstock.schema.ddl.tokens import NAME, STRING, SYMBOL, SqlMode, Token, TokenReader, split_commas, tokens_of
from penstock.schema.model import Column, TableSchema
from penstock.schema.quoting import quoted_name
from penstock.schema.statements import modify_column

# These change which types words stand for, so that their statements cannot be run in another session.
_OTHER_DIALECT = SqlMode.REAL_AS_FLOAT | SqlMode.ORACLE | SqlMode.MAXDB
_STRING_ESCAPES = str.maketrans({"\\": "\\\\", "'": "''", "\0": "\\0", "\x1a": "\\Z"})

Name = tuple[str, str]


@dataclass(frozen=True)
class Spelling:
    """A statement for the table `name`, which it creates or alters; `after` is what it makes, `before` what was there.
    `model`: the table that a copy is made of, if whoever runs the statement has it."""

    statement: Statement
    name: Name
    after: TableSchema
    before: TableSchema | None = None
    model: Name | None = None

    @property
    def columns(self) -> dict[str, Column]:
        return by_name(self.after.columns)

    def full_name(self, name: tuple[str | None, str]) -> Name:
        """The full name of what the statement calls so."""
        return name[0] or self.statement.schema, name[1]


def spelled(what: Spelling) -> str | None:
    """The statement anew; None if it has to be made from the table's columns instead: it copies a table that is not the
    model, or is in another dialect. CREATE TABLE gets the table's charset if it does not name one. Raises `Unreadable`."""
    statement = what.statement
    if statement.sql_mode & _OTHER_DIALECT:
        return None
    reader = TokenReader(statement.sql, statement.tokens)
    word = reader.next().upper
    if word == "CREATE":
        return _create(reader, what)
    if word == "ALTER":
        return _alter(reader, what)
    if word == "DROP" and reader.word("INDEX"):
        return f"DROP INDEX {_index(reader)} ON {quoted_name(*what.name)}{_led(_without_method(reader.rest()))}"
    return None


def partitioning(sql: str) -> str:
    """` PARTITION BY …` of a CREATE TABLE as a server prints it; empty where there is none. The versions of rows are not
    forwarded, so neither are their partitions."""
    reader = TokenReader(sql, tokens_of(sql))
    if not reader.word("CREATE", "TABLE"):
        return ""
    reader.qualified()
    if reader.sees("("):
        reader.inside()
    while not reader.done and not reader.word("PARTITION", "BY"):
        reader.next()
    tokens = reader.rest()
    return f" PARTITION BY{_led(tokens)}" if tokens and tokens[0].upper != "SYSTEM_TIME" else ""


def text_of(tokens: Sequence[Token]) -> str:
    """Tokens as text, with blanks where there was something between them."""
    parts: list[str] = []
    before: Token | None = None
    for token in tokens:
        two_strings = before is not None and before.kind == STRING and token.kind == STRING
        if before is not None and (token.start > before.end or two_strings):
            parts.append(" ")
        parts.append(_spell(token))
        before = token
    return "".join(parts)


def _spell(token: Token) -> str:
    if token.kind == NAME:
        return quoted_name(token.text)
    return f"'{token.text.translate(_STRING_ESCAPES)}'" if token.kind == STRING else token.text


def _led(tokens: Sequence[Token]) -> str:
    return f" {text_of(tokens)}" if tokens else ""


def _create(reader: TokenReader, what: Spelling) -> str | None:
    replaces = "OR REPLACE " if reader.word("OR", "REPLACE") else ""
    table, model, charset = quoted_name(*what.name), what.model, what.after.charset
    start = reader.at
    if not reader.word("TABLE"):
        start += bool(reader.any_word("ONLINE", "OFFLINE"))
        while not reader.done and not reader.word("INDEX"):
            reader.next()
        kind = text_of(reader.tokens[start : reader.at])
        return f"CREATE {replaces}{kind} {_index(reader)} ON {table}{_led(_without_method(reader.rest()))}"
    there = "IF NOT EXISTS " if reader.word("IF", "NOT", "EXISTS") else ""
    reader.qualified()
    if not reader.sees("(") or reader.ahead().upper == "LIKE":
        return None if model is None else f"CREATE {replaces}TABLE {there}{table} LIKE {quoted_name(*model)}"
    start = reader.at
    types = body_types(reader.sql, reader.inside(), what.statement.sql_mode, what.columns)
    body = text_of(resolved(reader.tokens[start : reader.at], what.name[0], None, types))
    options = resolved(_without_transaction(reader.rest()), what.name[0], charset)
    if charset is not None and not _names_charset(options):
        body += f" DEFAULT CHARACTER SET {charset}"
    return f"CREATE {replaces}TABLE {there}{table} {body}{_led(options)}"


def _without_transaction(options: list[Token]) -> list[Token]:
    """MySQL logs CREATE TABLE … SELECT with `START TRANSACTION`: whoever ran that would have to bring the rows with it."""
    words = [token.upper for token in options]
    if words[-2:] == ["START", "TRANSACTION"]:
        return options[:-2]
    return options


# How the source had to do it; another server may not be able to.
_METHOD = ("ALGORITHM", "LOCK")


def _is_method(clause: Sequence[Token]) -> bool:
    """Whether a clause of ALTER TABLE is `ALGORITHM = …` or `LOCK = …`."""
    return clause[0].upper in _METHOD and len([token for token in clause if token.text != "="]) == 2


def _without_method(tokens: Sequence[Token]) -> list[Token]:
    """What follows the table of CREATE or DROP INDEX, without `ALGORITHM = …` and `LOCK = …`."""
    kept: list[Token] = []
    depth = at = 0
    while at < len(tokens):
        token = tokens[at]
        if depth == 0 and token.upper in _METHOD:
            at += 3 if tokens[min(at + 1, len(tokens) - 1)].text == "=" else 2
            continue
        if token.kind == SYMBOL and token.text in "()":
            depth += 1 if token.text == "(" else -1
        kept.append(token)
        at += 1
    return kept


def _names_charset(options: Sequence[Token]) -> bool:
    words = [token.upper for token in options]
    before_partitions = words[: words.index("PARTITION")] if "PARTITION" in words else words
    return bool({"CHARSET", "COLLATE"} & {*before_partitions}) or "CHARACTER" in before_partitions


def _index(reader: TokenReader) -> str:
    """Takes what is before ON, and the table's name after it."""
    start = reader.at
    while not reader.done and not reader.word("ON"):
        reader.next()
    index = text_of(reader.tokens[start : reader.at - 1])
    reader.qualified()
    return index


def _alter(reader: TokenReader, what: Spelling) -> str:
    reader.any_word("ONLINE", "OFFLINE")
    ignore = "IGNORE " if reader.word("IGNORE") else ""
    reader.word("TABLE")
    there = "IF EXISTS " if reader.word("IF", "EXISTS") else ""
    reader.qualified()
    if reader.word("WAIT"):  # how long its session waited for a lock
        reader.next()
    reader.word("NOWAIT")
    parts = [TokenReader(reader.sql, part) for part in split_commas(reader.rest()) if part and not _is_method(part)]
    clauses = [_clause(part, what) for part in parts]
    if any(part.tokens[0].upper == "CONVERT" and part.tokens[1].upper == "TO" for part in parts):
        clauses += _outgrown(parts, what)
    return f"ALTER {ignore}TABLE {there}{quoted_name(*what.name)} {', '.join(clauses)}"


def _outgrown(parts: Sequence[TokenReader], what: Spelling) -> list[str]:
    """Clauses for columns that another charset makes too long for a VARCHAR, unless the statement redefines them."""
    if what.before is None:
        return []
    own = {token.text.lower() for part in parts if part.tokens[0].upper in _REDEFINES for token in part.tokens}
    grown = outgrown(what.before.columns, what.after.columns)
    return [modify_column(column) for column in grown if column.name.lower() not in own]


# Clauses of ALTER TABLE that name another table: the words before its name, None being a name that is passed over.
_NAMING: tuple[tuple[str | None, ...], ...] = (
    ("RENAME", "TO"),
    ("RENAME", "AS"),
    ("RENAME", "="),
    ("RENAME",),
    ("EXCHANGE", "PARTITION", None, "WITH", "TABLE"),
    ("CONVERT", "PARTITION", None, "TO", "TABLE"),
    ("CONVERT", "TABLE"),
)
_REDEFINES = ("ADD", "MODIFY", "CHANGE", "RENAME")
_RENAMES_WITHIN = ("COLUMN", "INDEX", "KEY")


def _clause(reader: TokenReader, what: Spelling) -> str:
    """One clause; the other table that it may name, under its full name."""
    for pattern in _NAMING:
        if _matches(reader, pattern) and not (pattern == ("RENAME",) and reader.ahead().upper in _RENAMES_WITHIN):
            lead = text_of(reader.tokens[: len(pattern)])
            reader.at = len(pattern)
            name = quoted_name(*what.full_name(reader.qualified()))
            return f"{lead} {name}{_led(reader.rest())}"
    types = clause_types(reader, what.statement.sql_mode, what.columns)
    return text_of(resolved(reader.rest(), what.name[0], what.after.charset, types))


def _matches(reader: TokenReader, pattern: Sequence[str | None]) -> bool:
    return all(
        word is None or word in (token.upper, token.text)
        for word, token in zip(pattern, reader.tokens[: len(pattern)], strict=False)
    ) and len(reader.tokens) > len(pattern)
