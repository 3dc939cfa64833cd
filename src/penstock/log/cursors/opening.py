"""Opening and deleting a durable cursor (docs/formats/record-log.md, "Registration": the steps and their order).

Where the records of a cursor are damaged, its registration is the last resort: it holds a mark-delete that was durable,
perhaps an old one. The cursor goes on there, so that entries may come again, but none is missed. The damaged files are
kept under other names, and the registration says what was wrong. Where nothing of the records is there at all, they may
be on a disk that is not mounted: then the cursor is refused.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from penstock.arguments import check_name, checked_path, shown
from penstock.clock import Clock
from penstock.errors import BadInput, Corruption, StorageFailed, Unavailable
from penstock.files import Files, typed_errors
from penstock.log.cursors.acked import Acked
from penstock.log.cursors.pointer import Pointer, register_beside_trim
from penstock.log.cursors.records import CursorState, ForeignCursor, encode_snapshot, maker_of_unused, replay
from penstock.log.cursors.registry import Registered, find, forget, is_registered, move
from penstock.log.ledgers.holds import log_list_key
from penstock.log.ledgers.info import LedgerList
from penstock.log.position import Position, check_position
from penstock.log.read.reader import LogReader
from penstock.log.records.generations import files_aside, has_files, record_log_files, set_aside
from penstock.log.records.record_log import RecordLog
from penstock.metadata import VersionConflict

Start = Literal["earliest", "latest"] | Position

_ATTEMPTS_MAX = 20
_logger = logging.getLogger(__name__)


class Opened(NamedTuple):
    records: RecordLog
    state: CursorState
    pointer: Pointer


def open_durable(
    reader: LogReader,
    directory: Path,
    name: str,
    start: Start,
    *,
    files: Files,
    clock: Clock,
    on_moved: Callable[[], None],
) -> Opened:
    """Becomes the owner. Raises `Unavailable` while another process is, `Corruption` where it is damaged or gone."""
    check_name("a cursor", name)
    check_start(start)
    directory = checked_path("the directory of a cursor", directory)
    for _ in range(_ATTEMPTS_MAX):
        with contextlib.suppress(_Changed):
            known = find(reader.metadata, reader.name, name)
            if known is not None and known.deleting:
                delete_durable(reader, directory, name, files)
                known = None
            try:
                return _open(reader, directory, name, start, known, files=files, clock=clock, on_moved=on_moved)
            except ForeignCursor:
                raise
            except Corruption as error:
                if known is None or known.directory != os.path.relpath(directory, reader.directory):
                    raise
                known = _fall_back(reader, directory, known, error, files=files, clock=clock)
                return _open(reader, directory, name, start, known, files=files, clock=clock, on_moved=on_moved)
    raise Unavailable(f"cursor {name} of log {reader.name} was made or deleted while it was opened", hint="try again")


class _Changed(Exception):
    """Another process made or deleted the cursor since its registration was read: what is there now is looked at anew."""


def _open(
    reader: LogReader,
    directory: Path,
    name: str,
    start: Start,
    known: Registered | None,
    *,
    files: Files,
    clock: Clock,
    on_moved: Callable[[], None],
) -> Opened:
    if known is not None and not files.exists(directory / f"{name}.current"):
        raise Corruption(
            f"cursor {name} is registered, but {directory / f'{name}.current'} is not there",
            hint="nothing was changed; restore the directory from a copy, or delete the cursor and open it anew",
        )
    with contextlib.ExitStack() as on_error:
        records = RecordLog.open(directory, name, files, clock)
        on_error.callback(_close_quietly, records)
        # Asked again, now that no other process can have the records: one may have made the cursor meanwhile, whose
        # position would be taken for a leftover, or have deleted it, whose records would be taken for lost.
        found_now = find(reader.metadata, reader.name, name)
        if (found_now is None or found_now.deleting) != (known is None):
            raise _Changed
        state, is_empty = None, False
        try:
            state = replay(records.records(), reader.uuid, reader.ledgers())
            is_empty = state is None
        except ForeignCursor:
            maker = maker_of_unused(records.records())
            if known is not None or maker is None or is_registered(reader.metadata, maker, name):
                raise  # else it is the leftover of an interrupted creation, in a log that was deleted since
        if known is not None and state is None:
            raise Corruption(
                f"cursor {name} is registered, but {directory} has no record of it",
                hint="restore the directory from a copy, or delete the cursor and open it anew",
            )
        if state is not None and state.set_back_from is not None:
            _logger.warning(
                "cursor %s of log %s was at %s, which a truncation of the log removed: it goes on after %s",
                name,
                reader.name,
                state.set_back_from,
                state.acked.mark_delete,
            )
        where = os.path.relpath(directory, reader.directory)
        if known is None:
            # Records of a cursor that was in use are adopted: the metadata is older than they are. Those of one that
            # never was in use are the leftover of an interrupted creation.
            found = state if state is not None and not state.fresh else None

            def make() -> CursorState:
                return found or CursorState(Acked(start_position(reader, start)), active_ms=clock.wall_ms(), fresh=True)

            state, known = _register(reader, records, name, make, directory=where, is_empty=is_empty)
        else:
            known = _take_over(reader, known, where, records)
        assert state is not None
        on_error.pop_all()
    return Opened(records, state, Pointer(reader, known, on_moved))


def _take_over(reader: LogReader, known: Registered, directory: str, records: RecordLog) -> Registered:
    """The registration, changed by the new owner of the records: from here on an earlier owner publishes nothing more.

    It may have published until now, also since `known` was read. Or a later owner came, if locks do not hold: the
    records tell the two apart, and raise `Fenced`. They are asked between reading and writing: whoever replaces this
    owner after that finds the registration changed, and takes it over in turn.
    """
    for _ in range(_ATTEMPTS_MAX):
        try:
            return move(reader.metadata, reader.name, replace(known, directory=directory))
        except VersionConflict:
            found = find(reader.metadata, reader.name, known.name)
            if found is None or found.deleting:
                break
            records.check_owner()
            known = found
    raise Unavailable(f"cursor {known.name} of log {reader.name} was changed while it was opened", hint="try again")


def _fall_back(
    reader: LogReader, directory: Path, known: Registered, error: Corruption, *, files: Files, clock: Clock
) -> Registered:
    """(1) the registration says what is wrong; (2) the damaged files are set aside; (3) a new record log begins with a
    snapshot at the registered mark-delete. A crash in between leaves a cursor that falls back again: files that were set
    aside show that its disk is there.

    Raises `error` where there is nothing to set aside, `Unavailable` while a process owns the cursor.
    """
    name, wall_ms = known.name, clock.wall_ms()
    with typed_errors(f"cursor {name} of log {reader.name}"), files.lock(directory / f"{name}.lock"):
        found = find(reader.metadata, reader.name, name)
        if found is None or found.version != known.version:
            raise _Changed
        if has_files(files, directory, name):
            known = move(reader.metadata, reader.name, replace(known, damage=error.message))
        elif not (known.damage and files_aside(files, directory, name)):
            raise error
        set_aside(files, directory, name, wall_ms)
        aside = files_aside(files, directory, name)
    records = RecordLog.open(directory, name, files, clock)
    try:
        state = CursorState(Acked(known.mark_delete), active_ms=wall_ms)
        records.append(encode_snapshot(state, reader.uuid)).result()
    finally:
        _close_quietly(records)
    _logger.warning(
        "cursor %s of log %s is damaged: %s; it goes on after %s, as it was registered, so entries after that may come "
        "again. The damaged files are kept: %s",
        name,
        reader.name,
        known.damage,
        known.mark_delete,
        ", ".join(map(str, aside)),
    )
    return known


def _register(
    reader: LogReader,
    records: RecordLog,
    name: str,
    make: Callable[[], CursorState],
    *,
    directory: str,
    is_empty: bool,
) -> tuple[CursorState, Registered]:
    """(1) the snapshot, durable; (2) the registration. Both again where the ledger list changed meanwhile."""
    written: CursorState | None = None

    def choose() -> Registered:
        nonlocal written, is_empty
        state = make()
        if state.fresh and (written is None or written.acked.mark_delete != state.acked.mark_delete):
            raw = encode_snapshot(state, reader.uuid)
            if is_empty:
                records.append(raw).result()
            else:
                records.rewrite([(raw, ())])
            is_empty = False
        written = state
        return Registered(name, str(reader.uuid), state.acked.mark_delete, directory)

    known = register_beside_trim(reader, choose)
    assert written is not None
    written.fresh = False
    return written, known


def check_start(start: object) -> None:
    """Raises `BadInput` unless a cursor may start there."""
    if isinstance(start, Position):
        check_position("the start of a cursor", start)
    elif not isinstance(start, str) or start not in ("earliest", "latest"):
        raise BadInput(f"a cursor cannot start at {shown(start)}", hint="earliest, latest or a position")


def start_position(reader: LogReader, start: Start) -> Position:
    """The mark-delete of a new cursor, as of the present ledger list."""
    check_start(start)
    listed = reader.metadata.get(log_list_key(reader.name))
    ledgers = LedgerList.decode(listed.value).ledgers if listed else ()
    first = Position(ledgers[0].id if ledgers else reader.first.ledger_id, -1)
    if start == "earliest":
        return first
    if start == "latest":
        return max(reader.end(), first)
    if start > reader.end():
        raise BadInput(f"a cursor cannot start at {start}, the log ends at {reader.end()}")
    return max(start, first)


def delete_durable(
    reader: LogReader, directory: Path, name: str, files: Files, *, unchanged: Registered | None = None
) -> bool:
    """(1) the registration says `deleting`; (2) the files are removed; (3) the registration too. False without a
    cursor.

    Raises `Unavailable` while a process owns the cursor, and where its registration is not `unchanged` any more: each open
    changes it.
    """
    if find(reader.metadata, reader.name, name) is None:
        return False
    with (
        typed_errors(f"cursor {name} of log {reader.name}"),
        files.lock(directory / f"{name}.lock") if files.exists(directory) else contextlib.nullcontext(),
    ):
        # Asked again, now that nobody else can have the files: another process may have finished an earlier deletion
        # and made a new cursor meanwhile, whose files would be taken for the old one's.
        known = find(reader.metadata, reader.name, name)
        if known is None:
            return True
        if unchanged is not None and known.version != unchanged.version:
            raise Unavailable(f"cursor {name} of log {reader.name} was used meanwhile", hint="nothing was changed")
        if not known.deleting:
            known = move(reader.metadata, reader.name, replace(known, deleting=True))
        for path in record_log_files(files, directory, name):
            try:
                files.remove(path)
            except IsADirectoryError as error:
                raise StorageFailed(
                    f"cursor {name} of log {reader.name} is not deleted yet: {path} is a directory",
                    hint="Penstock makes no directory there: move it away, then delete the cursor again",
                ) from error
        if files.exists(directory):
            files.sync_directory(directory)
        with contextlib.suppress(VersionConflict):  # another process finished the deletion: a new cursor may be there
            forget(reader.metadata, reader.name, known)
    return True


def _close_quietly(records: RecordLog) -> None:
    with contextlib.suppress(Exception):  # the caller raises the error that came first
        records.close_here()
