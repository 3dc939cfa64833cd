"""Bugs that the explorer found, each kept as the shortest program that shows it. The docstrings say what went wrong."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from penstock.errors import OutcomeUnknown, StorageFailed
from penstock.files.memory import DiskFault, MemoryFiles
from penstock.log import Cursor, Log, LogReader, LogSettings, RecordLog
from penstock.metadata import MemoryMetadata

DIRECTORY = Path("/s/log")
SETTINGS = LogSettings(preallocate_bytes=2048)


def fail_next_sync(files: MemoryFiles, suffix: str) -> None:
    """The next sync of a file whose name ends so fails. As on Linux, its pages then count as clean and are never written."""

    def before(number: int, name: str, path: Path) -> None:
        if name == "datasync" and path.name.endswith(suffix):
            files.on_operation = None
            files.fail_at(number, DiskFault.EIO)

    files.on_operation = before


@pytest.mark.parametrize("seed", range(8))
def test_a_ledger_whose_sync_failed_is_written_again_by_its_next_owner(seed: int) -> None:
    """The next owner read the entry from the page cache, synced successfully, and called it durable: it was not."""
    files, metadata = MemoryFiles(), MemoryMetadata()
    log = Log.open(DIRECTORY, SETTINGS, files, metadata=metadata)
    log.append(b"first").result()
    fail_next_sync(files, ".log")
    with contextlib.suppress(StorageFailed):
        log.append(b"second").result()
    killed, metadata = files.kill(), metadata.copy()
    with contextlib.suppress(StorageFailed):
        log.close()
    second = Log.open(DIRECTORY, SETTINGS, killed, metadata=metadata)
    told = second.end()
    seen = [bytes(entry.data) for entry in second.read(second.reader().first, told)]
    crashed, metadata = killed.crash(random.Random(seed)), metadata.copy()
    second.close()
    third = Log.open(DIRECTORY, SETTINGS, crashed, metadata=metadata)
    assert [bytes(entry.data) for entry in third.read(third.reader().first, told)] == seen
    third.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_record_log_whose_sync_failed_is_written_again_by_its_next_owner(seed: int) -> None:
    files = MemoryFiles()
    records = RecordLog.open(DIRECTORY, "r", files)
    records.append(b"first").result()
    fail_next_sync(files, ".rlog")
    with pytest.raises(OutcomeUnknown):
        records.append(b"second").result()
    killed = files.kill()
    with contextlib.suppress(StorageFailed):
        records.close()
    second = RecordLog.open(DIRECTORY, "r", killed)
    seen = [record.data for record in second.records()]
    crashed = killed.crash(random.Random(seed))
    second.close()
    third = RecordLog.open(DIRECTORY, "r", crashed)
    assert [record.data for record in third.records()][: len(seen)] == seen
    third.close()


def test_the_backlog_of_a_truncated_log_can_be_cleared() -> None:
    """The end of the log was an entry of a ledger that was gone; the cursor refused it as an entry that never was."""
    log = Log.open(DIRECTORY, LogSettings(ledger_entries_max=2), MemoryFiles(), metadata=MemoryMetadata())
    cursor = log.open_cursor("c")
    positions = [log.append(b"entry").result() for _ in range(4)]
    log.clear()
    cursor.clear_backlog().result()
    assert cursor.backlog() == 0
    cursor.ack(positions[1]).result()
    after = log.append(b"after").result()
    assert [entry.position for entry in cursor.read(10)] == [after]
    log.close()


def test_a_header_that_was_written_in_part_brings_nothing_into_force() -> None:
    """The disk was full in the middle of a generation's header; the next owner took the old generation's record for damage."""
    files = MemoryFiles()
    records = RecordLog.open(DIRECTORY, "r", files)
    records.append(b"first").result()

    def before(number: int, name: str, path: Path) -> None:
        if name == "write_at" and path.name.endswith(".rlog"):
            files.on_operation = None
            files.fail_at(number, DiskFault.SHORT_WRITE)

    files.on_operation = before
    with pytest.raises(OutcomeUnknown):
        records.rewrite([(b"all", ())])
    killed = files.kill()
    with contextlib.suppress(StorageFailed):
        records.close()
    again = RecordLog.open(DIRECTORY, "r", killed)
    assert [record.data for record in again.records()] == [b"first"]
    again.close()


def test_a_forced_truncation_gives_back_the_cursors_that_it_moved() -> None:
    """Their own processes could not open them until the log's owner closed it."""
    files, metadata = MemoryFiles(), MemoryMetadata()
    log = Log.open(DIRECTORY, LogSettings(ledger_entries_max=2), files, metadata=metadata)
    positions = [log.append(b"entry").result() for _ in range(4)]
    reader = LogReader.open(DIRECTORY, files, metadata)
    cursor = Cursor.open(reader, Path("/s/cursors"), "c", files=files)
    cursor.clear_backlog().result()
    cursor.close()
    log.truncate(positions[1], force=True)
    cursor = Cursor.open(reader, Path("/s/cursors"), "c", files=files)
    assert cursor.mark_delete_position == positions[1]
    cursor.close()
    log.close()
