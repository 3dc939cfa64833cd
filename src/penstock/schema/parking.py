"""Parked tables: which they are, why, and what stands for a parked version once its table was resumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.commit_ts import milliseconds_of
from penstock.schema.model import TableSchema
from penstock.schema.quoting import shell_word

# Reasons that mean that rows are not in the log.
ROWS_MISSING = "the server logged a statement instead of rows (binlog_format is not ROW in its session)"
SELECTED_ROWS_MISSING = "CREATE TABLE … SELECT, logged as a statement"
# Begins the reason of a table that a sink's own rules hold back, at that sink alone.
STOPPED_BY_RULES = "rules: "
# Begins the reason of a table whose rows a sink cannot read, though the statements before them were understood.
ROWS_UNREADABLE = "unreadable rows: "
SHOWN_CHARACTERS_MAX = 4000  # of a statement: a dump may hold one of megabytes, and status tells it every second
VersionKey = tuple[str, str, int]  # TableSchema.key


@dataclass(frozen=True, slots=True)
class Parking:
    """A table that waits for somebody who resumes it. `statement` is empty if no statement parked it but its rows, which
    do not fit what is known of it. `statements_after`: how many came since, and are held back with the rows. `rows_missing`:
    one of them all was logged instead of the rows that it changed, which are therefore not in the log."""

    table: str
    since_ms: int
    statement: str
    reason: str
    statements_after: int
    rows_missing: bool

    @property
    def command(self) -> str:
        return f"penstock resume {shell_word(self.table)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "since_ms": self.since_ms,
            "statement": _cut(self.statement),
            "reason": _cut(self.reason),
            "statements_after": self.statements_after,
            "rows_missing": self.rows_missing,
            "command": self.command,
        }


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}…"


def resumed(table: TableSchema, resumptions: Mapping[VersionKey, TableSchema]) -> TableSchema:
    """The version as readers take it: the one that its resumption gave, if it is parked and was resumed."""
    return resumptions.get(table.key, table) if table.parked else table


def parkings(versions: Iterable[TableSchema]) -> list[Parking]:
    """One for each name among the versions that are parked, at its oldest one; in the order in which they were parked."""
    by_name: dict[str, list[TableSchema]] = {}
    for version in sorted(versions, key=lambda table: table.version):
        if version.parked:
            by_name.setdefault(version.name, []).append(version)
    return [
        Parking(
            name,
            milliseconds_of(parked[0].version),
            parked[0].query,
            parked[0].reason,
            len(parked) - 1,
            any(version.reason in (ROWS_MISSING, SELECTED_ROWS_MISSING) for version in parked),
        )
        for name, parked in by_name.items()
    ]
