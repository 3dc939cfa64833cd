"""What `penstock log` does: operations on a log's directory, for people and scripts.

Everything but `create`, `append`, `trim` and `offload` only looks: it takes no lock and works while another process owns the log.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from uuid import UUID

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import BadInput, Corruption, Unavailable
from penstock.files import REAL_FILES, File
from penstock.log import Cursor, Entry, LedgerView, Log, LogReader, LogSettings, OffloadProgress, Position
from penstock.log.cursors.acks import Acks
from penstock.log.cursors.records import replay
from penstock.log.cursors.registry import Registered, registered
from penstock.log.frames.walk import FrameLine, walk_frames
from penstock.log.ledgers.holds import read_holds
from penstock.log.ledgers.info import LedgerList, ledger_id_of, ledger_path
from penstock.log.offload.offloader import to_offload
from penstock.log.offload.store import TieredLedgerStore
from penstock.log.read.reader import END_NAME, default_metadata_path, log_key
from penstock.log.records.reading import in_force, read_records
from penstock.log.retention.trim import over_retention, passed_by
from penstock.metadata import SqliteMetadata

_POLL_SECONDS = 0.05
_APPEND_BYTES = 1 << 20  # what is appended as one batch


# -- where it is -------------------------------------------------------------------------------------------------


def locate_log(path: Path) -> Path:
    """The log's directory: `path` itself, or `log/` in a state directory. Raises `BadInput` where neither is one."""
    for directory in (path, path / "log"):
        if (directory / END_NAME).is_file() or any(ledger_id_of(name) for name in REAL_FILES.list(directory)):
            return directory.absolute()
    raise BadInput(
        f"{path} holds no log",
        hint="give the log's directory or a state directory; `penstock log create PATH` makes a new log",
    )


@contextlib.contextmanager
def open_reader(path: Path) -> Iterator[LogReader]:
    directory = locate_log(path)
    try:
        reader = LogReader.open(directory)
    except FileNotFoundError as error:
        raise Corruption(
            f"{directory / END_NAME} is missing", hint="nothing was changed; restore the directory from a copy"
        ) from error
    try:
        yield reader
    finally:
        reader.close()


def parse_position(text: str) -> Position:
    try:
        return Position.parse(text)
    except ValueError:
        raise BadInput(f"{text!r} is no position", hint="LEDGER:ENTRY, such as 4:17") from None


# -- create, append ----------------------------------------------------------------------------------------------


def create_log(path: Path) -> UUID:
    """A new, empty log; who it is. Raises `BadInput` where something is there."""
    if REAL_FILES.list(path) or path.is_file():
        raise BadInput(f"{path} is there and not empty", hint="nothing was changed; a log wants a directory of its own")
    with Log.open(path.absolute()) as log:
        return log.uuid


def append_entries(path: Path, entries: Iterable[bytes]) -> Iterator[tuple[Position, Position]]:
    """Becomes the owner and appends; gives (first, last) of each batch once it is durable."""
    directory = locate_log(path)
    if (directory.parent / "progress").is_dir():
        raise BadInput(
            f"{directory} belongs to a flow of `penstock run`, which could not read a strange entry",
            hint="nothing was changed; append to a log of your own (`penstock log create PATH`)",
        )
    with Log.open(directory) as log:
        batch: list[bytes] = []
        for entry in entries:
            batch.append(entry)
            if sum(map(len, batch)) >= _APPEND_BYTES:
                yield _append(log, batch)
                batch = []
        if batch:
            yield _append(log, batch)


def _append(log: Log, batch: list[bytes]) -> tuple[Position, Position]:
    span = log.append_many(batch).result()
    return span.first, span.last


# -- read, tail --------------------------------------------------------------------------------------------------


def read_log(path: Path, start: str | None, end: str | None, limit: int | None) -> Iterator[Entry]:
    """Durable entries, both ends included."""
    with open_reader(path) as reader:
        first = parse_position(start) if start else reader.first
        last = parse_position(end) if end else reader.end()
        if last.entry_id < 0 or first > last:
            return
        yield from islice(reader.read(first, last), limit)


def tail_log(path: Path, last: int, *, follow: bool, seconds: float | None = None) -> Iterator[Entry]:
    """The last entries, then, with `follow`, each new one as it becomes durable; for `seconds` at most."""
    deadline = None if seconds is None else time.monotonic() + seconds
    with open_reader(path) as reader:
        end = reader.end()
        total = reader.count(Position(0, -1), end)
        position = reader.nth(total - min(last, total)) if last and total else None
        position = position or reader.next(end)
        while True:
            end = reader.end()
            if position <= end:
                yield from reader.read(position, end)
                position = reader.next(end)
            elif not follow or reader.terminated() or (deadline is not None and time.monotonic() >= deadline):
                return
            else:
                time.sleep(_POLL_SECONDS)
                if position > reader.end():
                    position = reader.next(end)  # the open ledger may have changed


# -- ls, inspect -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What `ls` shows."""

    directory: Path
    uuid: str
    epoch: int
    first: Position
    end: Position
    entries: int
    bytes: int
    terminated: bool
    properties: dict[str, str]
    ledgers: list[LedgerView]


def summarize(path: Path) -> LogSummary:
    with open_reader(path) as reader:
        views = reader.ledgers()
        listed = read_list(reader.directory)
        return LogSummary(
            reader.directory,
            str(reader.uuid),
            listed.epoch,
            reader.first,
            reader.end(),
            sum(view.entries for view in views),
            sum(view.frames_end for view in views),
            listed.terminated,
            dict(listed.properties),
            views,
        )


def inspect_frames(
    path: Path, ledger: int | None, cursor: str | None, bad_only: bool
) -> Iterator[tuple[Path | str, FrameLine]]:
    """The frames of every ledger, of one, or of a cursor's record log, with what is wrong with each.

    Of a ledger with several copies the first that counts is shown; `path` names it.
    """
    directory = locate_log(path)
    if cursor is not None:
        yield from ((file, line) for file, line in _record_frames(directory, cursor) if line.fault or not bad_only)
        return
    found = False
    with open_reader(path) as reader:
        for view in reader.ledgers():
            if ledger is not None and view.info.id != ledger:
                continue
            found = True
            store = TieredLedgerStore(directory, REAL_FILES, reader.uuid)
            opener = (
                opened(ledger_path(directory, view.info.id)) if view.info.is_local else closing(store.open(view.info))
            )
            with opener as file:
                for line in walk_frames(file, view.info.id, 0, view.frames_end):
                    if line.fault or not bad_only:
                        yield file.path, line
    if ledger is not None and not found:
        raise BadInput(f"the log has no ledger {ledger}", hint="`penstock log ls` names those that it has")


def _record_frames(directory: Path, cursor: str) -> Iterator[tuple[Path, FrameLine]]:
    with closing(SqliteMetadata(default_metadata_path(directory), must_exist=True)) as metadata:
        known = {one.name: one for one in registered(metadata, directory.name)}
    if cursor not in known:
        raise BadInput(f"the log has no cursor {cursor!r}", hint=f"it has: {', '.join(known) or 'none'}")
    where = cursor_directory(directory, known[cursor])
    found = in_force(REAL_FILES, where, cursor)
    with closing(found.file) as file:
        for line in walk_frames(file, found.number, found.header.first_entry, file.size()):
            yield file.path, line


@contextlib.contextmanager
def opened(path: Path) -> Iterator[File]:
    file = REAL_FILES.open(path)
    try:
        yield file
    finally:
        file.close()


def read_list(directory: Path) -> LedgerList:
    with closing(SqliteMetadata(default_metadata_path(directory), must_exist=True)) as metadata:
        found = metadata.get(log_key(directory))
    if found is None:
        raise Unavailable(f"{default_metadata_path(directory)} knows no log {directory.name}")
    return LedgerList.decode(found.value)


def cursor_directory(directory: Path, cursor: Registered) -> Path:
    """Where the cursor's record log is."""
    return directory / cursor.directory


# -- cursors -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CursorLine:
    """A cursor as its record log says; `fault` where that cannot be read."""

    name: str
    mark_delete: Position
    backlog_entries: int | None = None
    backlog_bytes: int | None = None
    holes: int | None = None
    active_ms: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    deleting: bool = False
    fault: str = ""


def list_cursors(path: Path) -> list[CursorLine]:
    """Every durable cursor, as of what is on the disk; whether somebody owns it does not matter."""
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
    return CursorLine(
        known.name,
        state.acked.mark_delete,
        cursor.backlog(),
        cursor.backlog_bytes(),
        cursor.hole_count(),
        max(state.active_ms, known.active_ms),
        state.properties,
    )


# -- trim, offload -----------------------------------------------------------------------------------------------


def trim_log(path: Path, keep_seconds: float | None, keep_bytes: int | None, *, dry_run: bool) -> list[int]:
    """Removes ledgers that every cursor and pin has passed and that are not to be kept; which they are."""
    if keep_seconds is None and keep_bytes is None:
        raise BadInput("nothing says what may go", hint="--keep-seconds 0 removes all that every cursor has passed")
    settings = LogSettings(retention_seconds=keep_seconds, retention_bytes=keep_bytes, maintenance_interval_seconds=0)
    directory = locate_log(path)
    if not dry_run:
        with Log.open(directory, settings) as log:
            return log.trim()
    listed = read_list(directory)
    with closing(SqliteMetadata(default_metadata_path(directory), must_exist=True)) as metadata:
        holds = read_holds(metadata, directory.name).holds
    going: list[int] = []
    for info in listed.ledgers[: over_retention(listed.ledgers, settings, SYSTEM_CLOCK.wall_ms())]:
        if not passed_by(info, holds):
            break
        going.append(info.id)
    return going


@dataclass(frozen=True, slots=True)
class OffloadOutcome:
    """The ledgers that were copied, and those whose local files went."""

    copied: list[int]
    moved: list[int]


def offload_log(
    path: Path,
    url: str,
    *,
    keep_bytes: int,
    lag_seconds: float,
    dry_run: bool,
    progress: Callable[[OffloadProgress], None] | None = None,
) -> OffloadOutcome:
    """Copies sealed ledgers beyond the newest `keep_bytes` to the store, and lets local files go whose lag is over."""
    settings = LogSettings(maintenance_interval_seconds=0, offload_url=url, offload_deletion_lag_seconds=lag_seconds)
    directory = locate_log(path)
    if dry_run:
        listed = read_list(directory)
        due_ms = SYSTEM_CLOCK.wall_ms() - lag_seconds * 1000
        return OffloadOutcome(
            [info.id for info in to_offload(listed.ledgers, keep_bytes)],
            [info.id for info in listed.ledgers if info.offload is not None and info.offload.state == "copied"
             and info.offload.copied_ms <= due_ms],
        )  # fmt: skip
    with Log.open(directory, settings) as log:
        before = {view.info.id for view in log.reader().ledgers() if view.info.is_local}
        copied = log.offload(keep_bytes=keep_bytes, progress=progress)
        log.reader().refresh()
        views = log.reader().ledgers()
        return OffloadOutcome(
            copied, [view.info.id for view in views if not view.info.is_local and view.info.id in before]
        )


def entry_document(entry: Entry) -> dict[str, object]:
    """An entry for programs: data as text where it is UTF-8, as hexadecimal digits otherwise."""
    raw = bytes(entry.data)
    document: dict[str, object] = {
        "position": str(entry.position),
        "wall_ms": entry.wall_ms,
        "bytes": len(raw),
        "changes": len(entry.changes),
    }
    try:
        document["data"] = raw.decode()
        json.dumps(document["data"], ensure_ascii=False).encode()
    except UnicodeError:
        document["data_hex"] = raw.hex()
    return document
