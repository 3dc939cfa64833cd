"""What a log has: its ledgers for `penstock log ls`, its durable cursors for `penstock log cursors`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import Corruption, StorageFailed, Unavailable
from penstock.files import REAL_FILES
from penstock.log import Cursor, LedgerView, LogReader, Position
from penstock.log.cursors.acks import Acks
from penstock.log.cursors.records import replay
from penstock.log.cursors.registry import Registered, registered
from penstock.log.records.reading import read_records
from penstock.operations.log.locate import cursor_directory, open_reader, read_ledger_list


@dataclass(frozen=True, slots=True)
class LogSummary:
    """A log as `penstock log ls` shows it."""

    directory: Path
    uuid: str
    epoch: int
    first: Position
    end: Position
    entries: int
    messages: int
    bytes: int
    body_bytes: int
    terminated: bool
    properties: dict[str, str]
    ledgers: list[LedgerView]


def summarize_log(path: Path) -> LogSummary:
    """The log at `path` as of its durable end."""
    with open_reader(path) as reader:
        views = reader.ledgers()
        listed = read_ledger_list(reader.directory)
        return LogSummary(
            reader.directory,
            str(reader.uuid),
            listed.epoch,
            reader.first,
            reader.end(),
            sum(view.entries for view in views),
            sum(view.messages for view in views),
            sum(view.frames_end for view in views),
            sum(view.body_bytes for view in views),
            listed.terminated,
            dict(listed.properties),
            list(views),
        )


@dataclass(frozen=True, slots=True)
class CursorLine:
    """A cursor as its record log says; `fault` says why where that, or what it has still to read, cannot be read."""

    name: str
    mark_delete: Position
    backlog_entries: int | None = None
    backlog_bytes: int | None = None
    holes: int | None = None
    active_ms: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    deleting: bool = False
    fault: str = ""
    damage: str = ""  # what was wrong with its records when it last fell back to its registration


def list_cursors(path: Path) -> list[CursorLine]:
    """Every durable cursor as it is on the disk, whether or not a process owns it."""
    with open_reader(path) as reader:
        return [_cursor_line(reader, cursor) for cursor in registered(reader.metadata, reader.name)]


def _cursor_line(reader: LogReader, known: Registered) -> CursorLine:
    if known.deleting:
        return CursorLine(known.name, known.mark_delete, active_ms=known.active_ms, deleting=True)
    try:
        records = read_records(REAL_FILES, cursor_directory(reader.directory, known), known.name)
        state = replay(records, reader.uuid, reader.ledgers())
        if state is None:
            raise Corruption("it is registered, but has no record")
    except (Corruption, FileNotFoundError) as error:
        return CursorLine(known.name, known.mark_delete, active_ms=known.active_ms, fault=str(error))
    cursor = Cursor(reader, known.name, Acks(reader, known.name, state, clock=SYSTEM_CLOCK))
    size, fault = None, ""
    try:
        size = cursor.backlog_bytes()
    except (Corruption, StorageFailed, Unavailable) as error:  # of a ledger that the cursor has still to read
        fault = f"its backlog cannot be read: {error.message}"
    return CursorLine(
        known.name,
        state.acked.mark_delete,
        cursor.backlog(),
        size,
        cursor.hole_count(),
        max(state.active_ms, known.active_ms),
        state.properties,
        fault=fault,
        damage=known.damage,
    )
