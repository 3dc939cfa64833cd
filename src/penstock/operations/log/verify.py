"""`penstock log verify`: checks every byte that counts of a log, its cursors and a flow's progress."""

from __future__ import annotations

import contextlib
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import Corruption, NotSupported, StorageFailed, Unavailable
from penstock.files import REAL_FILES
from penstock.log.check.damage import Damage
from penstock.log.check.local import examine_end_file, examine_ledger, examine_record_log
from penstock.log.check.offloaded import examine_offloaded
from penstock.log.cursors.records import replay
from penstock.log.cursors.registry import Registered, registered
from penstock.log.frames.end_file import EndFile
from penstock.log.frames.file_header import FILE_HEADER_BYTES
from penstock.log.frames.reader import holds_frames
from penstock.log.ledgers.holds import read_holds
from penstock.log.ledgers.info import LedgerInfo, LedgerList, ledger_id_of, ledger_path
from penstock.log.offload.store import TieredLedgerStore
from penstock.log.read.reader import END_NAME, default_metadata_path
from penstock.log.records.reading import read_records
from penstock.metadata import SqliteMetadata
from penstock.operations.log.locate import cursor_directory, locate_log, open_file, open_reader, read_ledger_list


@dataclass(slots=True)
class LogCheck:
    """How much was checked, and everything that is wrong."""

    directory: Path
    ledgers: int = 0
    entries: int = 0
    bytes: int = 0
    offloaded: int = 0  # copies in object stores
    record_logs: int = 0
    records: int = 0
    faults: list[Damage] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.faults


def verify_log(path: Path) -> LogCheck:
    """Checks ledgers and their offloaded copies, the end file, cursors' record logs and a flow's progress. Changes
    nothing."""
    directory = locate_log(path)
    check = LogCheck(directory)
    check.faults += examine_end_file(REAL_FILES, directory / END_NAME)
    with contextlib.ExitStack() as resources:
        end_file = None
        if (directory / END_NAME).exists():
            end_file = EndFile.open(REAL_FILES, directory / END_NAME)
            resources.callback(end_file.close)
        # The files are listed before the ledger list is read, so that a ledger created meanwhile is not reported as a
        # file that the list does not know.
        numbers = [number for number in map(ledger_id_of, REAL_FILES.list(directory)) if number is not None]
        listed = _checked_list(check)
        if listed is None:
            return check
        store = TieredLedgerStore(directory, REAL_FILES, listed.uuid)
        for info in listed.ledgers:
            if info.is_local:
                _verify_ledger(check, listed, info, end_file)
            if info.is_offloaded:
                _verify_offloaded(check, listed, info, store)
        for number in sorted({*numbers} - {*(info.id for info in listed.ledgers)} - {*listed.deleting}):
            _verify_unlisted(check, number)
    _verify_record_logs(check, listed)
    return check


def _checked_list(check: LogCheck) -> LedgerList | None:
    path = default_metadata_path(check.directory)
    try:
        return read_ledger_list(check.directory)
    except NotSupported:
        raise
    except (Unavailable, Corruption) as error:
        check.faults.append(Damage(path, 0, error.message))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        check.faults.append(Damage(path, 0, f"the ledger list cannot be read: {error}"))
    return None


def _verify_ledger(check: LogCheck, listed: LedgerList, info: LedgerInfo, end_file: EndFile | None) -> None:
    try:
        found = examine_ledger(REAL_FILES, check.directory, listed.uuid, info, end_file)
    except FileNotFoundError:
        if any(one.id == info.id and one.is_local for one in read_ledger_list(check.directory).ledgers):
            # If the list no longer names it, the file was trimmed or offloaded meanwhile, which is no fault.
            path = ledger_path(check.directory, info.id)
            check.faults.append(Damage(path, 0, "the ledger list names this file, but it is missing"))
        return
    check.ledgers += 1
    check.entries += found.entries
    check.bytes += found.bytes
    check.faults += found.damage


def _verify_offloaded(check: LogCheck, listed: LedgerList, info: LedgerInfo, store: TieredLedgerStore) -> None:
    assert info.offload is not None
    try:
        objects = store.objects(info.offload.url)
    except StorageFailed as error:
        check.faults.append(Damage(info.offload.url, 0, error.message))
        return
    with contextlib.ExitStack() as resources:
        local = None
        if info.is_local:
            with contextlib.suppress(FileNotFoundError, Corruption):  # reported by _verify_ledger
                local = store.open_local(info)
                resources.callback(local.close)
        found = examine_offloaded(objects, listed.uuid, info, local)
    if found.damage and not any(one.id == info.id and one.offload == info.offload for one in
                                read_ledger_list(check.directory).ledgers):  # fmt: skip
        return  # trimmed, or copied again, meanwhile
    check.offloaded += 1
    check.bytes += found.bytes
    check.faults += found.damage
    if not info.is_local:
        check.ledgers += 1
        check.entries += found.entries


def _verify_unlisted(check: LogCheck, number: int) -> None:
    """A ledger file that the list does not name may exist only without entries: a crash left it before its first
    one."""
    path = ledger_path(check.directory, number)
    with contextlib.suppress(FileNotFoundError), open_file(path) as file:
        if holds_frames(file, number):
            check.faults.append(
                Damage(path, FILE_HEADER_BYTES, "it holds entries, but the ledger list does not know it")
            )


def _verify_record_logs(check: LogCheck, listed: LedgerList) -> None:
    path = default_metadata_path(check.directory)
    cursors: list[Registered] = []
    try:
        with closing(SqliteMetadata(path, must_exist=True)) as metadata:
            read_holds(metadata, check.directory.name)
            cursors = [one for one in registered(metadata, check.directory.name) if not one.deleting]
    except Corruption as error:
        check.faults.append(Damage(path, 0, error.message))
    except (ValueError, KeyError, TypeError) as error:
        check.faults.append(Damage(path, 0, f"a cursor or pin cannot be read: {error}"))
    for cursor in cursors:
        where = cursor_directory(check.directory, cursor)
        if _verify_record_log(check, where, cursor.name) and (check.directory / END_NAME).exists():
            _verify_cursor(check, listed, where, cursor.name)
    progress = check.directory.parent / "progress"
    for name in REAL_FILES.list(progress):
        if name.endswith(".current") and not name.startswith("."):
            _verify_record_log(check, progress, name.removesuffix(".current"))


def _verify_record_log(check: LogCheck, directory: Path, name: str) -> bool:
    found = examine_record_log(REAL_FILES, directory, name)
    check.record_logs += 1
    check.records += found.entries
    check.bytes += found.bytes
    check.faults += found.damage
    return not found.damage


def _verify_cursor(check: LogCheck, listed: LedgerList, directory: Path, name: str) -> None:
    """The cursor's records can be replayed, and name only positions that the log has."""
    try:
        with open_reader(check.directory) as reader:
            state = replay(read_records(REAL_FILES, directory, name), listed.uuid, reader.ledgers())
        if state is None:
            raise Corruption("it is registered, but has no record")
    except Corruption as error:
        check.faults.append(Damage(directory / f"{name}.current", 0, f"cursor {name}: {error.message}"))
