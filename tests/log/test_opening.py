"""Opening, closing, terminating and describing a log."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, Closed, PenstockError, Unavailable
from penstock.files import File
from penstock.files.memory import DiskFault, MemoryFiles
from penstock.log import Log, LogReader, LogSettings, Position, Terminated, wait_all
from penstock.log.ledgers.info import LedgerList
from penstock.log.read.reader import log_key
from penstock.metadata import MemoryMetadata, Versioned
from tests.support.waiting import LIMIT_SECONDS

DIRECTORY = Path("/s/log")
SMALL = LogSettings(ledger_entries_max=3, preallocate_bytes=1024, maintenance_interval_seconds=0)


def open_log(files: MemoryFiles, metadata: MemoryMetadata, settings: LogSettings = SMALL) -> Log:
    return Log.open(DIRECTORY, settings, files, ManualClock(), metadata)


def content(log: Log) -> list[bytes]:
    reader = log.reader()
    return [bytes(entry.data) for entry in reader.read(reader.first, reader.end())]


def left_open(files: MemoryFiles, metadata: MemoryMetadata) -> tuple[MemoryFiles, MemoryMetadata]:
    """A log whose owner was killed with four entries in it."""
    log = open_log(files, metadata)
    wait_all([log.append(b"%d" % n) for n in range(4)])
    killed = files.kill(), metadata.copy()
    log.close()
    return killed


def test_a_failure_at_each_file_operation_of_open_fails_it_and_the_next_open_works() -> None:
    failed = 0
    for operation in range(1, 40):
        files, metadata = left_open(MemoryFiles(), MemoryMetadata())
        before = files.operations
        files.fail_at(before + operation, DiskFault.EIO)
        with contextlib.suppress(PenstockError, OSError):
            open_log(files, metadata).close()
            if files.operations < before + operation:
                break
        failed += 1
        again = open_log(files, metadata)
        assert content(again) == [b"0", b"1", b"2", b"3"]
        assert again.append(b"4").result() > Position(2, 0)
        again.close()
    assert failed > 8


@pytest.mark.parametrize("write", [1, 2])
def test_a_failure_at_each_metadata_change_of_open_fails_it_and_the_next_open_works(write: int) -> None:
    files, metadata = left_open(MemoryFiles(), MemoryMetadata())
    writes = 0

    def fail() -> None:
        nonlocal writes
        writes += 1
        if writes == write:
            raise Unavailable("the metadata store is away")

    metadata.before_write = fail
    with pytest.raises(Unavailable):
        open_log(files, metadata)
    metadata.before_write = lambda: None
    again = open_log(files, metadata)
    assert content(again) == [b"0", b"1", b"2", b"3"]
    again.close()


def test_a_failure_at_each_file_operation_of_delete_is_typed_and_readers_find_the_log_deleted() -> None:
    failed = 0
    for operation in range(1, 40):
        files, metadata = left_open(MemoryFiles(), MemoryMetadata())
        before = files.operations
        files.fail_at(before + operation, DiskFault.EIO)
        try:
            Log.delete(DIRECTORY, files, ManualClock(), metadata)
        except PenstockError:
            failed += 1
        if metadata.get(log_key(DIRECTORY)) is None:
            break  # it took fewer operations
        with pytest.raises(Unavailable, match="is being deleted"):
            LogReader.open(DIRECTORY, files, metadata)
        Log.delete(DIRECTORY, files, ManualClock(), metadata)
        assert not metadata.children("")
    assert failed > 4


def test_a_reader_says_which_file_the_disk_refuses() -> None:
    files, metadata = left_open(MemoryFiles(), MemoryMetadata())

    def refuse(path: Path, *, writable: bool = False) -> File:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    files.open = refuse  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match=r"end cannot be read: .*Permission denied"):
        LogReader.open(DIRECTORY, files, metadata)


def test_opening_twice_in_one_process_shares_the_log_and_the_last_close_counts(tmp_path: Path) -> None:
    first = Log.open(tmp_path / "log")
    second = Log.open(tmp_path / "log")
    assert (first.uuid, first.epoch) == (second.uuid, second.epoch)
    first.close()
    second.append(b"still open").result()
    second.close()
    with pytest.raises(Closed):
        second.append(b"closed")
    third = Log.open(tmp_path / "log")
    assert third.epoch == first.epoch + 1
    third.close()


def test_a_forked_child_does_not_own_the_log_of_its_parent(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    position = log.append(b"x").result()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            reader = LogReader.open(tmp_path / "log")
            if [bytes(e.data) for e in reader.read(position, position)] == [b"x"]:
                Log.open(tmp_path / "log")
        except Unavailable:  # the parent holds it
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    log.close()


def test_concurrent_openers_share_one_recovery(tmp_path: Path) -> None:
    logs: list[Log] = []
    threads = [threading.Thread(target=lambda: logs.append(Log.open(tmp_path / "log"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [log.epoch for log in logs] == [1] * 8
    for log in logs:
        log.close()


def test_empty_ledgers_are_dropped_at_reopen_and_readers_skip_them() -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    log = open_log(files, metadata)
    log.append(b"a").result()
    for _ in range(3):  # killed before anything was appended
        killed, after = files.kill(), metadata.copy()
        log.close()
        files, metadata = killed, after
        log = open_log(files, metadata)
    log.append(b"b").result()
    views = log.reader().ledgers()
    assert [view.entries for view in views] == [1, 1]
    assert content(log) == [b"a", b"b"]
    assert log.reader().next(Position(1, 0)) == Position(views[-1].info.id, 0)
    assert len([name for name in files.list(DIRECTORY) if name.startswith("ledger-")]) == 2
    log.close()


def test_nothing_runs_after_close(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    log = Log.open(tmp_path / "log", LogSettings(retention_seconds=0, maintenance_interval_seconds=0.01))
    log.append(b"x").result()
    cursor = log.open_cursor("c")
    cursor.mark_delete(Position(1, 0)).result()
    assert set(threading.enumerate()) > before
    log.close()
    assert set(threading.enumerate()) == before


def test_close_waits_for_the_maintenance_that_is_at_work() -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    before = set(threading.enumerate())
    log = open_log(files, metadata, LogSettings(retention_seconds=0, maintenance_interval_seconds=30))
    at_work = threading.Event()
    entries = metadata.entries

    def slow(prefix: str) -> list[tuple[str, Versioned]]:
        at_work.set()
        time.sleep(0.3)
        return entries(prefix)

    metadata.entries = slow  # type: ignore[method-assign]
    log.trim_soon()
    assert at_work.wait(LIMIT_SECONDS)
    log.close()
    assert set(threading.enumerate()) == before


def test_properties_are_never_lost() -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    log = open_log(files, metadata)
    assert log.set_properties({"owner": "ada", "colour": "red"}) == {"colour": "red", "owner": "ada"}
    wait_all([log.append(b"%d" % n) for n in range(7)])  # rolls
    log.set_properties({"colour": None, "size": "3"})
    killed, after = files.kill(), metadata.copy()
    log.close()
    again = open_log(killed, after)
    assert again.properties() == {"owner": "ada", "size": "3"}
    again.clear()
    assert again.properties() == {"owner": "ada", "size": "3"}
    assert LogReader.open(DIRECTORY, killed, after).properties() == {"owner": "ada", "size": "3"}
    again.terminate()
    again.close()
    assert open_log(killed, after).properties() == {"owner": "ada", "size": "3"}


def test_a_terminated_log_takes_nothing_more_and_is_read_as_before() -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    log = open_log(files, metadata)
    wait_all([log.append(b"%d" % n) for n in range(4)])
    reader = LogReader.open(DIRECTORY, files, metadata)
    assert not reader.terminated()
    assert log.terminate() == Position(2, 0)
    assert log.terminate() == Position(2, 0)
    with pytest.raises(Terminated):
        log.append(b"late")
    assert reader.terminated()
    assert content(log) == [b"0", b"1", b"2", b"3"]
    log.close()
    again = open_log(files, metadata)
    assert again.terminated()
    assert again.end() == Position(2, 0)
    with pytest.raises(Terminated):
        again.append_many([b"late"])
    assert content(again) == [b"0", b"1", b"2", b"3"]
    again.close()
    reader.close()


def test_appends_that_wait_behind_a_terminate_fail_and_never_appear() -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    log = open_log(files, metadata)
    outcomes: list[object] = []
    pendings = [log.append(b"%d" % n) for n in range(50)]
    thread = threading.Thread(target=lambda: outcomes.append(log.terminate()))
    thread.start()
    with contextlib.suppress(Terminated):
        for n in range(5000):
            pendings.append(log.append(b"%d" % (50 + n)))
    thread.join()
    kept = [pending for pending in pendings if pending.exception() is None]
    assert len(content(log)) == len(kept) >= 50
    assert outcomes == [log.end()]
    log.close()


def test_a_batch_is_one_answer_and_lies_in_one_ledger(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", LogSettings(ledger_entries_max=5))
    log.append(b"first").result()
    span = log.append_many([b"%d" % n for n in range(1000)]).result()
    assert (span.first, span.last) == (Position(1, 1), Position(1, 1000))
    mixed = log.append_many([b"x", bytearray(b"yy"), memoryview(b"zzz"), bytes(100_000)]).result()
    assert mixed.first == Position(2, 0)
    entries = list(log.read(span.first, mixed.last))
    assert [bytes(e.data) for e in entries[:1000]] == [b"%d" % n for n in range(1000)]
    assert [len(e.data) for e in entries[1000:]] == [1, 2, 3, 100_000]
    with pytest.raises(BadInput, match="empty batch"):
        log.append_many([])
    log.close()


def test_many_threads_append_and_each_finds_its_entries_in_its_own_order(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", LogSettings(ledger_bytes_max=20_000))
    positions: dict[int, list[Position]] = {}

    def work(number: int) -> None:
        positions[number] = wait_all([log.append(b"%d:%d" % (number, n)) for n in range(300)])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    where = {entry.position: bytes(entry.data) for entry in log.read(log.reader().first, log.end())}
    assert len(where) == 1800
    for number, own in positions.items():
        assert own == sorted(own)
        assert [where[position] for position in own] == [b"%d:%d" % (number, n) for n in range(300)]
    log.close()


def test_statistics_say_what_is_there() -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    log = open_log(files, metadata)
    wait_all([log.append(b"x" * 10) for _ in range(7)])
    statistics = log.statistics()
    assert (statistics.entries, statistics.ledgers, statistics.rolls) == (7, 3, 2)
    assert statistics.bytes == 3 * 64 + 7 * 78
    assert (statistics.first, statistics.last_confirmed) == (Position(1, 0), Position(3, 0))
    assert statistics.appended_entries == 7
    log.close()


def test_members_of_the_list_that_say_nothing_may_be_absent() -> None:
    raw = (
        b'{"format":1,"uuid":"12345678123456781234567812345678","epoch":3,"next_ledger":7,"trimmed_below":0,'
        b'"ledgers":[{"id":4,"epoch":2,"state":"sealed","entries":10,"frames_end":1234,"first_ms":0,"last_ms":0},'
        b'{"id":6,"epoch":3,"state":"open"}]}'
    )
    listed = LedgerList.decode(raw)
    assert (listed.deleting, listed.terminated, listed.properties) == ((), False, ())
    assert [info.footer for info in listed.ledgers] == [True, True]
    assert LedgerList.decode(listed.encode()) == listed
