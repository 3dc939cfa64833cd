"""Tables that a user describes: SQL as `mysqldump --no-data` writes it, or a server as it is now."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import BadInput, PenstockError
from penstock.operations.config.loading import load
from penstock.schema.catalog import Catalog
from penstock.schema.ddl import Statement, apply_ddl, is_ddl, leading_word
from penstock.schema.ddl.tokens import SYMBOL, tokens_of
from penstock.schema.model import TableSchema
from penstock.sources.settings import ServerSettings, Tables

_DELIMITER = re.compile(r"^\s*DELIMITER\s+(\S+)\s*$", re.IGNORECASE | re.MULTILINE)
_USE = re.compile(r"USE\s+`?((?:[^`;\s]|``)+)`?", re.IGNORECASE)


def tables_from_sql(option: str) -> list[TableSchema]:
    """The tables of `FILE`, or of `DATABASE=FILE`. Raises `BadInput` where a statement is not understood."""
    database, path = _database_and_path(option)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--schema {path} cannot be read: {error}") from error
    catalog = Catalog()
    try:
        for sql in _statements(text):
            used = _USE.match(sql)
            if used:
                database = used[1].replace("``", "`")
            elif is_ddl(sql):
                for table in apply_ddl(Statement(sql, database), catalog, 0):
                    if table.parked:
                        raise BadInput(table.reason)
                    if table.table and not table.schema:
                        raise BadInput(
                            f"no USE comes before the table {table.table}", hint=f"write --schema DATABASE={path}"
                        )
                    catalog.take(table)
    except PenstockError as error:
        raise BadInput(f"--schema {path}: {error.message}", hint=error.hint) from error
    found = list(catalog.tables())
    if not found:
        raise BadInput(f"--schema {path} has no CREATE TABLE", hint="write one with mysqldump --no-data")
    return found


def tables_of_server(config: Path) -> list[TableSchema]:
    """The tables of the server that a configuration names, as they are now."""
    from penstock.sources.mysql.connection import connect
    from penstock.sources.mysql.definitions import read_definitions, versions_of
    from penstock.sources.mysql.family import server_version

    settings = load(config).source
    if not isinstance(settings, ServerSettings):
        raise BadInput(f"--server {config}: its source is of type {settings.type}, not a server")
    with contextlib.closing(connect(settings)) as connection:
        mariadb = "mariadb" in server_version(connection).lower()
        made = versions_of(read_definitions(connection, Tables()), 0, mariadb=mariadb)
    return [table for table in made if not table.parked]


def _database_and_path(option: str) -> tuple[str, Path]:
    database, separator, path = option.partition("=")
    return (database, Path(path)) if separator and not Path(option).exists() else ("", Path(option))


def _statements(text: str) -> Iterator[str]:
    """Each statement. What stands under another delimiter are triggers and routines, which make no tables."""
    delimiter = ";"
    at = 0
    for change in [*_DELIMITER.finditer(text), None]:
        if delimiter == ";":
            yield from _split(text[at : change.start() if change else len(text)])
        if change:
            delimiter, at = change[1], change.end()


def _split(text: str) -> Iterator[str]:
    start = 0
    for token in tokens_of(text):
        if token.kind == SYMBOL and token.text == ";":
            piece = text[start : token.start]
            start = token.end
            if leading_word(piece) or piece.strip():
                yield piece.strip()
    if text[start:].strip():
        yield text[start:].strip()
