"""The versions of tables under their names, and whose rows a table has now: its own since it was made or emptied, and
those that it had under the names before.

A row belongs to the version that was in force when it was changed; a statement begins a new version. So what a table is
now is told by a list of versions, whether the rows of each come from files or from a log.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import BadInput, PenstockError
from penstock.schema.ddl.tokens import TokenReader, tokens_of
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.schema.quoting import shell_word

Name = tuple[str, str]

_SHOWN_MAX = 120  # characters of a statement


def shown_statement(table: TableSchema) -> str:
    """The statement that made a version, short enough for a message."""
    query = table.query or f"the change at {table.version}"
    return query if len(query) <= _SHOWN_MAX else f"{query[:_SHOWN_MAX]}…"


@dataclass(slots=True)
class History:
    """`origins`: a version that a rename made, by name and number, and the name that its table had before."""

    versions: dict[Name, list[TableSchema]] = field(default_factory=dict)
    origins: dict[tuple[Name, int], Name] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Iterable[TableSchema], origins: Mapping[tuple[Name, int], Name]) -> History:
        made = cls(origins=dict(origins))
        for table in tables:
            made.versions.setdefault((table.schema, table.table), []).append(table)
        for versions in made.versions.values():
            versions.sort(key=lambda table: table.version)
        return made

    def find(self, written: str) -> Name:
        """The table that a user calls `schema.table`. Raises `BadInput` with the nearest names."""
        known = {f"{schema}.{table}": (schema, table) for schema, table in self.versions if table}
        if written in known:
            return known[written]
        folded = {name.lower(): name for name in known}
        near = difflib.get_close_matches(written.lower(), list(folded), n=3, cutoff=0.5)
        shown = [folded[name] for name in near] or sorted(known)[:5]
        hint = f"there is {', '.join(shown)}" if shown else "nothing was delivered or captured yet"
        raise BadInput(f"option table is {written!r}, and no such table is here", hint=hint)

    def newest(self, name: Name) -> TableSchema:
        """The newest version that has columns, also of a table that is gone. Raises `BadInput` where there is none."""
        for table in reversed(self.versions.get(name, [])):
            if table.columns:
                return table
        raise BadInput(f"the columns of {'.'.join(name)} are not known here")

    def lineage(self, name: Name) -> list[TableSchema]:
        """The versions whose changes make up the table of now, ascending. Raises `BadInput` for a table that is gone or
        parked."""
        found = self._lineage(name, None)
        if not found:
            last = self.versions[name][-1]
            raise BadInput(
                f"{'.'.join(name)} is gone: {shown_statement(last)}", hint='its changes are still here: view "changes"'
            )
        return found

    def _lineage(self, name: Name, below: int | None) -> list[TableSchema]:
        parts: list[TableSchema] = []
        dropped = max(
            (
                one.version
                for one in self.versions.get((name[0], ""), [])
                if one.kind is ChangeKind.DROP_DATABASE and (below is None or one.version < below)
            ),
            default=-1,
        )
        for table in reversed(self.versions.get(name, [])):
            if below is not None and table.version >= below:
                continue
            if table.parked:
                raise BadInput(
                    f"{table.name} is parked: {shown_statement(table)} ({table.reason})",
                    hint=f"its rows are held back until `penstock resume {shell_word(table.name)}`",
                )
            if table.version <= dropped or not table.columns:
                break
            parts.append(table)
            origin = self.origins.get((name, table.version))
            if origin is not None:
                return [*self._lineage(origin, table.version), *reversed(parts)]
            if table.kind is ChangeKind.CREATE or table.ddl_type is DdlType.TRUNCATE_TABLE:
                break
        return parts[::-1]


def log_origins(versions: Iterable[tuple[int, TableSchema]]) -> dict[tuple[Name, int], Name]:
    """The renames among a log's own versions; those of one statement have the same number."""
    left: dict[tuple[int, str], Name] = {}
    came: list[tuple[int, TableSchema]] = []
    for statement, table in versions:
        if table.ddl_type is DdlType.RENAME_TABLE:
            left[statement, table.name] = (table.schema, table.table)
            if table.columns:
                came.append((statement, table))
    return {
        ((table.schema, table.table), table.version): left[statement, table.other]
        for statement, table in came
        if (statement, table.other) in left
    }


def sink_origins(tables: Iterable[TableSchema]) -> tuple[dict[tuple[Name, int], Name], list[TableSchema]]:
    """The renames that a sink's schema files tell, and a version without columns for each name that they left: such a name
    has no file of its own."""
    tables = list(tables)
    own = {(table.schema, table.table, table.version) for table in tables}
    origins: dict[tuple[Name, int], Name] = {}
    left: list[TableSchema] = []
    for table in tables:
        for new, old in _renamed(table).items():
            origins[new, table.version] = old
            if (*old, table.version) not in own:
                left.append(TableSchema(*old, table.version, (), table.query, DdlType.RENAME_TABLE))
    return origins, left


def _renamed(table: TableSchema) -> dict[Name, Name]:
    """New name → old name, of the statement in a schema file. Names that go round in a circle pass through another."""
    try:
        reader = TokenReader(table.query, tokens_of(table.query))
        if reader.word("RENAME", "TABLE"):
            now: dict[Name, Name] = {}
            while True:
                old = _qualified(reader)
                reader.word("TO")
                now[_qualified(reader)] = now.pop(old, old)
                if not reader.symbol(","):
                    return now
        if reader.word("ALTER", "TABLE"):
            target, name = _qualified(reader), (table.schema, table.table)
            return {name: target} if target != name else {}
    except PenstockError:
        pass  # a statement of another kind, or one that this version does not read: it renames nothing
    return {}


def _qualified(reader: TokenReader) -> Name:
    schema, table = reader.qualified()
    return schema or "", table
