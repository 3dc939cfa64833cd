"""The definition of a table that is resumed: from a file, or from the server at a moment that the log has reached.

The server says what a table is now, and the log may be behind it. So the server's position is read right after the
definition, and the definition is used only once the log has come there: a statement in between is then in the log, and
whoever plans the resumption sees it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.entries.stores import SOURCE, SOURCE_POSITION
from penstock.errors import BadInput, Unavailable
from penstock.log import LogReader
from penstock.operations.config.model import Config
from penstock.operations.status import ask_run
from penstock.schema.catalog import Catalog
from penstock.schema.ddl import Statement, apply_ddl
from penstock.schema.from_table_map import is_readable
from penstock.schema.model import DdlType, TableSchema
from penstock.sources.position import SourcePosition
from penstock.sources.settings import ServerSettings
from penstock.state import StateReader

REACH_SECONDS_MAX = 30.0  # how long the log may take to come to the server's position
_POLL_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Definition:
    """`text` is a CREATE TABLE; `origin` says in words where it came from. `is_now`: it is the table of today, not the one
    right after the statement that parked it."""

    text: str
    origin: str
    is_now: bool = False

    def define(self, parked: TableSchema, before: Catalog, mariadb: bool) -> TableSchema:
        """The table that the text defines, for the name and database of `parked`. Raises `BadInput`."""
        databases = (
            TableSchema(name, "", 0, (), ddl_type=DdlType.CREATE_SCHEMA, charset=before.database_charset(name))
            for name in before.databases()
        )
        made = apply_ddl(Statement(self.text, parked.schema, mariadb=mariadb), Catalog(databases), parked.version)
        if len(made) != 1 or not made[0].columns or made[0].ddl_type is not DdlType.CREATE_TABLE:
            reason = made[0].reason if made and made[0].reason else "it is not one CREATE TABLE with columns"
            raise BadInput(f"the definition in {self.origin} is not understood: {reason}", hint="nothing was changed")
        (table,) = made
        if unknown := [f"{c.name} {c.mysql_type}" for c in table.columns if not is_readable(c)]:
            raise BadInput(
                f"the definition in {self.origin} is not understood: {unknown[0]}: there is no such type",
                hint="nothing was changed",
            )
        if (table.schema.lower(), table.table.lower()) != (parked.schema.lower(), parked.table.lower()):
            raise BadInput(f"{self.origin} defines {table.name}, not {parked.name}", hint="nothing was changed")
        return replace(table, schema=parked.schema, table=parked.table)


def from_file(path: Path) -> Definition:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path} cannot be read: {error}", hint="it holds one CREATE TABLE, as SHOW CREATE TABLE prints it"
        ) from error
    return Definition(text, str(path))


def from_server(config: Config, parked: TableSchema) -> Definition:
    """What the server says of the table, once the log has come to where the server was then."""
    settings = config.source
    if not isinstance(settings, ServerSettings):
        raise BadInput(
            f"a source of type {settings.type} cannot be asked what {parked.name} is",
            hint="give its CREATE TABLE, as it was after the statement that parked it: --schema FILE",
        )
    from penstock.sources.mysql.connection import where
    from penstock.sources.mysql.definitions import definition_now

    text, position = definition_now(settings, parked.schema, parked.table)
    if text is None:
        raise BadInput(
            f"the server has no table {parked.name} any more",
            hint="give its CREATE TABLE, as it was after the statement that parked it: --schema FILE",
        )
    _wait_for(lambda: captured_through(config.state_dir), position, running=ask_run(config.state_dir) is not None)
    return Definition(text, where(settings), is_now=True)


def captured_through(state_dir: Path) -> SourcePosition | None:
    """The saved position: everything of the source before it is in the log."""
    with closing(LogReader.open(state_dir / "log")) as reader, closing(StateReader.open(reader)) as state:
        return state.store(SOURCE_POSITION).get(SOURCE)


def _wait_for(saved: Callable[[], SourcePosition | None], target: SourcePosition, *, running: bool) -> None:
    deadline = time.monotonic() + (REACH_SECONDS_MAX if running else 0)
    while (here := saved()) is None or not here.reaches(target):
        if time.monotonic() >= deadline:
            what = "start the flow first" if not running else "wait until it has caught up"
            raise Unavailable(
                f"the server is at {target}, and the log has come to {here}: what the server says may be too new",
                hint=f"nothing was changed; {what}, or give the definition: penstock resume TABLE --schema FILE",
            )
        time.sleep(_POLL_SECONDS)


def as_it_was(definition: Definition, changes: tuple[str, ...], parked: TableSchema) -> None:
    """Refuses the table of today where its name was touched since: statements that are applied to it again would change it
    twice, and after a DROP it is another table."""
    if definition.is_now and changes:
        raise BadInput(
            f"{parked.name} was changed again since it was parked, {len(changes)} times, first by: {changes[0][:120]!r}",
            hint="nothing was changed; give its CREATE TABLE as it was before that: penstock resume TABLE --schema FILE",
        )
