"""Skipping: entries that cannot be read any more are given up, on demand alone, and everybody is told.

Only entries that no copy of a ledger gives back are taken; one that can be read is never skipped. With one change of the
ledger list the ledger says which they are (docs/formats/ledger.md): from there on readers and cursors pass over them,
count them (`penstock_log_passed_over_entries`) and say so. Their positions stay, and are never given again. The file stays
as it is until it is trimmed. A crash before the change leaves the log as it was, after it there is nothing more to do.

A ledger that its last owner left open, and that cannot be recovered, keeps the log from being opened. It is sealed by the
same change, at the end that its owner published or at its last whole frame after that, which is made durable first. A
file header that is damaged costs no entry; a file that is whole and belongs to another log has none of ours.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from pyroaring import BitMap

from penstock.errors import BadInput, Corruption, Fenced, Unavailable
from penstock.files import REAL_FILES, Files
from penstock.log.cursors.acked import runs
from penstock.log.cursors.table import CursorTable
from penstock.log.frames.end_file import EndFile, FinalEnd, SyncedEnd
from penstock.log.frames.file_header import FILE_HEADER_BYTES, LEDGER_MAGIC, refuse_foreign_file
from penstock.log.frames.walk import FrameLine, walk_frames
from penstock.log.ledgers.info import LedgerInfo, LedgerList, ledger_path
from penstock.log.ledgers.local import make_end_durable
from penstock.log.position import Position
from penstock.log.read.reader import END_NAME, LogReader, default_metadata_path, log_key
from penstock.metadata import MetadataStore, SqliteMetadata, VersionConflict


class Skipping(NamedTuple):
    """What is lost by a skip."""

    ledger_id: int
    ranges: tuple[tuple[Position, Position], ...]  # first and last of each, both included
    entries: int
    bytes: int  # of their frames, as far as that can be said
    entries_kept: int  # of the ledger, which can be read
    cursors: dict[str, int]  # how many of them each cursor has not acked


def plan_skip(
    reader: LogReader, listed: LedgerList, ledger_id: int, files: Files, cursors: CursorTable
) -> tuple[Skipping, LedgerInfo]:
    """(what would be lost, the ledger as the list will have it). Changes nothing.

    Raises `BadInput` where there is no such ledger or all of it can be read, `Unavailable` where an object store with a copy
    of it does not answer.
    """
    info = next((one for one in listed.ledgers if one.id == ledger_id), None)
    if info is None:
        raise BadInput(f"the log has no ledger {ledger_id}", hint="`penstock log ls` lists them")
    good = _whole_frames(ledger_path(reader.directory, info.id), listed.uuid, info, files)
    if not info.sealed:
        info = _sealed(reader, info, good, files)
    lost = BitMap(range(info.entries)) - BitMap(good) - info.skipped_entries()
    if lost and info.is_offloaded:
        lost -= BitMap([entry for entry in lost if _is_readable(reader, Position(info.id, entry))])
    if not lost:
        raise BadInput(
            f"every entry of ledger {ledger_id} can be read, or was skipped before", hint="there is nothing to skip"
        )
    ranges = tuple((Position(info.id, first), Position(info.id, last)) for first, last in runs(lost))
    kept_bytes = sum(good[entry].bytes for entry in good if entry < info.entries)
    skipping = Skipping(
        info.id,
        ranges,
        len(lost),
        max(info.frames_end - FILE_HEADER_BYTES - kept_bytes, 0),
        info.entries - len(lost),
        cursors.lacking(info.id, lost),
    )
    return skipping, dataclasses.replace(info, skipped=tuple(runs(lost | info.skipped_entries())))


def skip_in_list(listed: LedgerList, skipped: LedgerInfo) -> LedgerList:
    """The list after the skip. Raises `Unavailable` where the ledger changed since the plan was made."""
    old = next((info for info in listed.ledgers if info.id == skipped.id), None)
    if old is None or (old.sealed and dataclasses.replace(old, skipped=skipped.skipped) != skipped):
        raise Unavailable(f"ledger {skipped.id} changed meanwhile", hint="try again")
    return dataclasses.replace(listed, ledgers=tuple(skipped if info is old else info for info in listed.ledgers))


def skip_closed(
    directory: Path,
    ledger_id: int,
    *,
    dry_run: bool = False,
    files: Files = REAL_FILES,
    metadata: MetadataStore | None = None,
) -> Skipping:
    """Skips what cannot be read of a ledger, in a log that nobody has open, also one that cannot be opened.

    Raises as `plan_skip`; and `Unavailable` while a process owns the log, unless it is a dry run, which changes nothing.
    """
    with contextlib.ExitStack() as resources:
        if not dry_run:
            resources.enter_context(files.lock(directory / "lock"))
        if metadata is None:
            metadata = SqliteMetadata(default_metadata_path(directory), must_exist=True)
            resources.callback(metadata.close)
        if not dry_run:
            metadata.settle()
        reader = LogReader.open(directory, files, metadata)
        resources.callback(reader.close)
        found = metadata.get(log_key(directory))
        if found is None:
            raise Unavailable(f"there is no log at {directory}")
        listed = LedgerList.decode(found.value)
        skipping, skipped = plan_skip(reader, listed, ledger_id, files, CursorTable(reader, files=files))
        if not dry_run:
            if not next(info for info in listed.ledgers if info.id == ledger_id).sealed:
                _make_durable(directory, skipped, files)
            try:
                metadata.put(log_key(directory), skip_in_list(listed, skipped).encode(), found.version)
            except VersionConflict as error:
                raise Fenced(f"{directory}: another process opened the log at the same time") from error
        return skipping


def _make_durable(directory: Path, sealed: LedgerInfo, files: Files) -> None:
    """Brings the frames above the published end to the disk, as a recovery does, before the list counts them."""
    path = ledger_path(directory, sealed.id)
    slot, _ = _ends(directory, sealed.id, files)
    with _typed(path):
        file = files.open(path, writable=True)
        try:
            make_end_durable(file, slot.synced_end if slot else 0, min(sealed.frames_end, file.size()))
        finally:
            file.close()


def _ends(directory: Path, ledger_id: int, files: Files) -> tuple[SyncedEnd | None, FinalEnd | None]:
    """What the `end` file says of the ledger: (the published end, the end for good)."""
    end_file = EndFile.open(files, directory / END_NAME)
    try:
        final_end = end_file.read_final_end()
        return end_file.read_of(ledger_id), final_end if final_end and final_end.file_id == ledger_id else None
    finally:
        end_file.close()


@contextlib.contextmanager
def _typed(path: Path) -> Iterator[None]:
    """A file that is missing is no error: nothing of it can be read, ever. Others say nothing of the entries."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:  # no descriptors, no permission
        raise Unavailable(
            f"{path} cannot be read now: {error}", hint="repair that first: nothing was skipped"
        ) from error


def _whole_frames(path: Path, uuid: UUID, info: LedgerInfo, files: Files) -> dict[int, FrameLine]:
    """The frames of the local file that match their checksums, by entry; none where it is the file of another log."""
    good: dict[int, FrameLine] = {}
    if not info.is_local:
        return good
    with _typed(path):
        file = files.open(path)
        try:
            refuse_foreign_file(file, LEDGER_MAGIC, uuid, info.id)
            stop = info.frames_end if info.sealed else file.size()
            for line in walk_frames(file, info.id, 0, stop):
                if line.header is not None and not line.fault:
                    good.setdefault(line.header.entry_id, line)
        except Corruption:
            pass  # readers refuse all of it
        finally:
            file.close()
    return good


def _is_readable(reader: LogReader, position: Position) -> bool:
    try:
        return any(True for _ in reader.entries(position, position))
    except (Corruption, BadInput):
        return False


def _sealed(reader: LogReader, info: LedgerInfo, good: dict[int, FrameLine], files: Files) -> LedgerInfo:
    """A ledger that nobody sealed, sealed at the end that its owner published, or at its last whole frame after that."""
    slot, final_end = _ends(reader.directory, info.id, files)
    entries, frames_end = 0, FILE_HEADER_BYTES
    if final_end is not None:
        entries, frames_end = final_end.entries, final_end.frames_end
        good = {entry: line for entry, line in good.items() if entry < entries}
    elif slot is not None:
        entries = slot.last.entry_id + 1 if slot.last.ledger_id == info.id else 0
        frames_end = slot.synced_end
    headers = [line.header for line in good.values() if line.header is not None]
    entries = max([entries, *(entry + 1 for entry in good)])
    times = [header.wall_ms for header in headers] or [info.created_ms]
    return dataclasses.replace(
        info,
        state="sealed",
        entries=entries,
        frames_end=max([frames_end, *(line.offset + line.bytes for line in good.values())]),
        first_ms=min(times),
        last_ms=max(times),
        messages=sum(header.messages for header in headers) + entries - len(headers),
        footer=False,
    )
