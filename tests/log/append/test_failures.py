"""What a caller sees of a disk, a metadata store or an owner that fails: appends, rolls, reads, ownership."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import Fenced, PenstockError, StorageFailed, Unavailable
from penstock.files.memory import DiskFault, MemoryFiles
from penstock.log import Log, LogReader, LogSettings, Position, Terminated, wait_all
from penstock.log.ledgers.info import LedgerList
from penstock.metadata import MemoryMetadata
from tests.support.files import OtherProcessFiles
from tests.support.waiting import LIMIT_SECONDS

DIRECTORY = Path("/s/log")
SETTINGS = LogSettings(preallocate_bytes=4096, maintenance_interval_seconds=0)
SMALL = LogSettings(ledger_entries_max=3, preallocate_bytes=4096, maintenance_interval_seconds=0)


class Disk(MemoryFiles):
    """Files whose operations fail, by name, while that is switched on."""

    def __init__(self) -> None:
        super().__init__(self._before)
        self.failing: dict[str, int] = {}  # "<operation> <suffix>" → how many times

    def _before(self, number: int, name: str, path: Path) -> None:
        for rule, left in self.failing.items():
            operation, suffix = rule.split()
            if left and operation == name and path.name.endswith(suffix):
                self.failing[rule] -= 1
                self.fail_at(number, DiskFault.EIO)


def open_log(files: MemoryFiles, metadata: MemoryMetadata, settings: LogSettings = SETTINGS) -> Log:
    return Log.open(DIRECTORY, settings, files, ManualClock(), metadata)


def content(log: Log) -> list[bytes]:
    reader = log.reader()
    return [bytes(entry.data) for entry in reader.read(reader.first, reader.end())]


@pytest.mark.parametrize("fault", list(DiskFault))
def test_one_write_error_is_invisible_to_the_caller(fault: DiskFault) -> None:
    for offset in range(1, 5):
        files, metadata = MemoryFiles(), MemoryMetadata()
        log = open_log(files, metadata, SMALL)
        first = log.append(b"good").result()
        files.fail_at(files.operations + offset, fault)
        positions = [log.append(b"%d" % n).result() for n in range(5)]
        assert [first, *positions] == sorted({first, *positions})
        expected = [b"good", b"0", b"1", b"2", b"3", b"4"]
        assert content(log) == expected
        log.close()
        again = open_log(files, metadata, SMALL)
        assert content(again) == expected
        again.close()


def test_after_a_failed_sync_nothing_of_that_file_is_written_again() -> None:
    """After a failed sync the kernel may drop the data, and a second sync succeeds without it."""
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    kept = log.append(b"kept").result()
    files.failing["datasync .log"] = 1
    moved = log.append(b"moved").result()
    assert (kept.ledger_id, moved.ledger_id) == (1, 2)
    seen: list[Path] = []
    files.on_operation = lambda number, name, path: seen.append(path)
    log.append(b"more").result()
    assert DIRECTORY / "ledger-0000000000000001.log" not in seen
    log.close()


def test_two_failed_appends_give_one_new_ledger_and_keep_their_order() -> None:
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    log.append(b"first").result()
    files.failing["append .log"] = 1
    pendings = [log.append(b"%d" % n) for n in range(2)]
    positions = wait_all(pendings)
    assert positions == [Position(2, 0), Position(2, 1)]
    assert log.statistics().ledger_switches == 1
    assert content(log) == [b"first", b"0", b"1"]
    log.close()


def test_an_empty_ledger_that_failed_is_not_in_the_way() -> None:
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    files.failing["datasync .log"] = 1
    assert log.append(b"x").result() == Position(2, 0)
    killed, after = files.kill(), metadata.copy()
    log.close()
    again = open_log(killed, after)
    assert content(again) == [b"x"]
    assert not killed.exists(DIRECTORY / "ledger-0000000000000001.log")
    again.close()


@pytest.mark.parametrize("operation", ["append .log", "datasync .log"])
def test_store_and_metadata_failing_together_fail_the_append_and_it_never_appears(operation: str) -> None:
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    log.append(b"before").result()
    files.failing[operation] = 1

    def down() -> None:
        raise Unavailable("the metadata store is away")

    metadata.before_write = down
    failed = [log.append(b"failed %d" % n) for n in range(2)]
    for pending in failed:
        assert isinstance(pending.exception(), PenstockError)
    killed, then = files.kill(), metadata.copy()
    then.before_write = lambda: None
    other = open_log(killed, then)
    assert content(other) == [b"before"]  # another owner does not find them
    other.close()
    metadata.before_write = lambda: None
    log.append(b"after").result()  # and this one goes on by itself
    assert content(log) == [b"before", b"after"]
    log.close()
    again = open_log(files, metadata)
    assert content(again) == [b"before", b"after"]
    again.close()


def test_a_full_disk_fails_appends_until_there_is_room() -> None:
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    log.append(b"before").result()
    files.failing.update({"append .log": 1000, "create .log": 1000})
    for _ in range(3):
        with pytest.raises(StorageFailed):
            log.append(b"no room").result()
    files.failing.clear()
    log.append(b"after").result()
    assert content(log) == [b"before", b"after"]
    log.close()


def test_while_the_metadata_store_is_down_appends_go_on_beyond_the_limit() -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    clock = ManualClock()
    log = Log.open(DIRECTORY, SMALL, files, clock, metadata)

    def down() -> None:
        raise Unavailable("the metadata store is away")

    metadata.before_write = down
    positions = [log.append(b"%d" % n).result() for n in range(10)]
    assert {position.ledger_id for position in positions} == {1}
    with pytest.raises(Unavailable, match="does not answer"):
        log.set_properties({"a": "b"})
    metadata.before_write = lambda: None
    clock.advance(2)  # the pause after a failed roll
    assert log.append(b"10").result().ledger_id == 2
    assert log.set_properties({"a": "b"}) == {"a": "b"}
    assert content(log) == [b"%d" % n for n in range(11)]
    log.close()
    again = open_log(files, metadata)
    assert content(again) == [b"%d" % n for n in range(11)]
    again.close()


@pytest.mark.parametrize("how", ["roll", "trim", "clear", "properties", "terminate"])
def test_a_version_conflict_fences_for_good_and_close_still_unregisters(how: str) -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    settings = LogSettings(preallocate_bytes=4096, retention_seconds=0, maintenance_interval_seconds=0)
    log = open_log(files, metadata, settings)
    log.append(b"x").result()
    log.roll()
    log.append(b"y").result()
    found = metadata.get("log/log")
    assert found is not None
    metadata.put("log/log", found.value, found.version)  # somebody else was there
    operations = {
        "roll": log.roll,
        "trim": log.trim,
        "clear": log.clear,
        "properties": lambda: log.set_properties({"a": "b"}),
        "terminate": log.terminate,
    }
    with pytest.raises(Fenced):
        operations[how]()
    for _ in range(2):
        with pytest.raises(Fenced):
            log.set_properties({"c": "d"})
        with pytest.raises(Fenced):
            log.read(log.end(), log.end())
        with pytest.raises(Fenced):
            log.append(b"never").result()
    with contextlib.suppress(Fenced):
        log.close()
    again = open_log(files, metadata, settings)  # not the old one, which is gone
    assert again is not log
    assert content(again) == [b"x", b"y"]
    again.close()


def test_a_second_opener_fences_append_read_and_open_cursor_of_the_first() -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    first = open_log(files, metadata)
    kept = first.append(b"kept").result()
    second = open_log(OtherProcessFiles(files), metadata)  # type: ignore[arg-type]
    assert second is not first
    with pytest.raises(Fenced):
        first.read(kept, kept)
    with pytest.raises(Fenced):
        first.open_cursor("c")
    with pytest.raises(Fenced):
        first.append(b"never").result()
    with pytest.raises(Fenced):
        first.pin("p", kept)
    assert content(second) == [b"kept"]
    with contextlib.suppress(Fenced):
        first.close()
    second.append(b"new").result()
    second.close()


def test_an_append_that_times_out_is_not_lost_and_its_late_answer_disturbs_nobody(tmp_path: Path) -> None:
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    reached, go_on = threading.Event(), threading.Event()

    def hold(number: int, name: str, path: Path) -> None:
        if name == "datasync" and path.suffix == ".log" and not go_on.is_set():
            reached.set()
            files.mutex.release()
            go_on.wait(LIMIT_SECONDS)
            files.mutex.acquire()

    files.on_operation = hold
    pending = log.append(b"slow")
    called: list[Position] = []
    pending.add_done_callback(lambda done: called.append(done.result(0)))
    assert reached.wait(LIMIT_SECONDS)
    with pytest.raises(TimeoutError):
        pending.result(0.05)
    assert not pending.done()
    go_on.set()
    assert pending.result() == Position(1, 0)
    assert called == [Position(1, 0)]
    assert log.append(b"next").result() == Position(1, 1)
    log.close()


def test_close_amid_a_hundred_appends_completes_every_future_even_on_a_broken_disk() -> None:
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    files.failing.update({"append .log": 1000, "create .log": 1000})
    pendings = [log.append(bytes(1000)) for _ in range(100)]
    with contextlib.suppress(PenstockError):
        log.close()
    assert all(pending.done() for pending in pendings)
    files.failing.clear()
    again = open_log(files, metadata)
    assert len(content(again)) == sum(pending.exception(0) is None for pending in pendings)
    again.close()


def test_a_read_that_the_disk_refuses_is_tried_again_and_then_fails_by_name(tmp_path: Path) -> None:
    from penstock.files import File, RealFiles

    class Refusing(RealFiles):
        left = 0

        def open(self, path: Path, *, writable: bool = False) -> File:
            file = super().open(path, writable=writable)
            read_at = file.read_at

            def refusing(offset: int, size: int) -> bytes:
                if self.left and offset >= 64 and path.suffix == ".log":
                    self.left -= 1
                    raise OSError(5, "Input/output error")
                return read_at(offset, size)

            file.read_at = refusing  # type: ignore[method-assign]
            return file

    log = Log.open(tmp_path / "log")
    position = log.append(b"x").result()
    files = Refusing()
    reader = LogReader.open(tmp_path / "log", files)
    files.left = 2
    assert [bytes(entry.data) for entry in reader.read(position, position)] == [b"x"]
    reader.cache.drop(reader.cache_key)
    files.left = 100
    with pytest.raises(Unavailable, match="ledger 1 cannot be read at entry 0"):
        list(reader.read(position, position))
    files.left = 0
    assert [bytes(entry.data) for entry in reader.read(position, position)] == [b"x"]
    reader.close()
    log.close()


def test_the_list_of_a_failed_ledger_says_so() -> None:
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    wait_all([log.append(b"%d" % n) for n in range(3)])
    files.failing["append .log"] = 1
    log.append(b"3").result()
    found = metadata.get("log/log")
    assert found is not None
    first, second = LedgerList.decode(found.value).ledgers
    assert (first.state, first.entries, first.footer) == ("sealed", 3, False)
    assert (second.state, second.footer) == ("open", True)
    reader = LogReader.open(DIRECTORY, files, metadata)
    assert [bytes(e.data) for e in reader.read(Position(1, 1), Position(2, 0))] == [b"1", b"2", b"3"]
    assert reader.find_by_time(10**15) == Position(2, 0)
    reader.close()
    log.close()


def test_an_entry_that_fits_is_taken_where_nothing_can_be_reserved_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    log = Log.open(tmp_path / "log", SMALL)
    for number in range(5):
        log.append(b"%d" % number * 3000).result(5)
    assert len(content(log)) == 5
    assert log.statistics().ledger_switches == 0
    log.close()


def test_a_terminate_whose_last_sync_fails_is_a_terminate() -> None:
    """The list says so already: what were appended after it would be in no ledger."""
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    last = log.append(b"last").result()
    files.failing["datasync end"] = 1
    with pytest.raises(StorageFailed):
        log.terminate()
    assert log.state == "terminated"
    with pytest.raises(Terminated):
        log.append(b"late")
    assert log.terminate() == last
    log.close()
    again = open_log(files, metadata)
    assert again.terminated()
    assert content(again) == [b"last"]
    again.close()


def test_a_leftover_that_cannot_be_removed_keeps_the_ledger_open() -> None:
    """Of an attempt to roll that failed half way. The footer of the roll must not stand between frames."""
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    log.append(b"0").result()
    files.create(DIRECTORY / "ledger-0000000000000002.log").close()
    files.failing["remove .log"] = 1
    assert not log.roll()
    assert log.append(b"1").result() == Position(1, 1)
    log.close()
    again = open_log(files, metadata)
    assert content(again) == [b"0", b"1"]
    again.close()


def test_an_empty_ledger_that_cannot_be_removed_does_not_fail_a_close() -> None:
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    files.failing["remove .log"] = 1
    log.close()
    again = open_log(files, metadata)
    assert sum(name.startswith("ledger-") for name in files.list(DIRECTORY)) == 1
    again.close()
