"""What the tests of cursors share: settings with small ledgers, and short ways to write and to read."""

from __future__ import annotations

from penstock.log import Cursor, LogSettings, Position

SETTINGS = LogSettings(ledger_entries_max=3, preallocate_bytes=0, retention_seconds=0, maintenance_interval_seconds=0)


def at(text: str) -> Position:
    return Position.parse(text)


def values(cursor: Cursor, *args: object, **kwargs: object) -> list[int]:
    """The numbers in the entries that `cursor.read(…)` returns."""
    return [int(bytes(entry.data)) for entry in cursor.read(*args, **kwargs)]  # type: ignore[arg-type]
