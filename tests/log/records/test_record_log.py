"""The record log: records survive, a rewrite replaces them atomically, one owner."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, Fenced, OutcomeUnknown, PenstockError, StorageFailed, Unavailable
from penstock.files import File
from penstock.files.memory import DiskFault, MemoryFiles, PowerCut
from penstock.log import Pending, RecordLog, StateChange, wait_all
from tests.support.files import UnlockedFiles
from tests.support.waiting import LIMIT_SECONDS, wait_until


def test_records_survive_and_go_on_after_a_rewrite(tmp_path: Path) -> None:
    log = RecordLog.open(tmp_path / "d", "name")
    changes = (StateChange(3, b"k", b"v"),)
    assert wait_all([log.append(b"%d" % n, changes) for n in range(5)]) == [0, 1, 2, 3, 4]
    log.rewrite([(b"all", changes)])
    assert log.append(b"after").result() == 6
    log.close()
    again = RecordLog.open(tmp_path / "d", "name")
    assert [(r.number, r.data, r.changes) for r in again.records()] == [(5, b"all", changes), (6, b"after", ())]
    again.rewrite([record for record in again.records() if record.data != b"after"])
    assert [(r.number, r.data, r.changes) for r in again.records()] == [(7, b"all", changes)]
    assert again.append(b"next").result() == 8
    assert len(list((tmp_path / "d").glob("*.rlog"))) == 1
    again.close()


def test_one_owner(tmp_path: Path) -> None:
    files = UnlockedFiles()
    first = RecordLog.open(tmp_path, "r", files)
    first.append(b"a").result()
    second = RecordLog.open(tmp_path, "r", files)
    with pytest.raises(Fenced):
        first.append(b"b").result()
    second.append(b"c").result()
    assert [r.data for r in second.records()] == [b"a", b"c"]
    second.close()
    with contextlib.suppress(Fenced):
        first.close()
    held = RecordLog.open(tmp_path, "r")
    with pytest.raises(Unavailable):
        RecordLog.open(tmp_path, "r")
    held.close()


def test_a_name_cannot_leave_its_directory(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        RecordLog.open(tmp_path, "../r")


def program(files: MemoryFiles, acknowledged: list[bytes]) -> None:
    """Sets a counter again and again, with rewrites; `acknowledged` gets each value that was acknowledged."""
    with contextlib.suppress(PowerCut):
        for session in range(2):
            log = RecordLog.open(Path("/d"), "r", files)
            try:
                for n in range(4):
                    value = b"%d" % (session * 4 + n)
                    log.append(value).result()
                    acknowledged.append(value)
                    if n == 2:
                        log.rewrite([(value, ())])
            finally:
                with contextlib.suppress(PowerCut):
                    log.close()


def test_a_power_cut_at_every_operation_loses_no_record_and_no_rewrite() -> None:
    whole, acknowledged = MemoryFiles(), list[bytes]()
    program(whole, acknowledged)
    assert len(acknowledged) == 8
    for operation in range(1, whole.operations + 1):
        files = MemoryFiles()
        files.cut_power_at(operation)
        acknowledged = []
        program(files, acknowledged)
        for fate in range(6):
            after = files.crash(random.Random(f"{operation} {fate}"))
            log = RecordLog.open(Path("/d"), "r", after)
            found = [record.data for record in log.records()]
            submitted = [b"%d" % n for n in range(8)]
            if acknowledged:
                assert submitted.index(found[-1]) >= submitted.index(acknowledged[-1]), (
                    operation,
                    fate,
                    found,
                    acknowledged,
                )
            numbers = [int(value) for value in found]
            assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else not acknowledged
            log.append(b"on").result()
            log.close()


@pytest.mark.parametrize("back_ms", range(3))
def test_what_an_interrupted_creation_left_is_in_no_later_owners_way(back_ms: int) -> None:
    """A generation outlived the power cut and `.end` did not: it has a number that an owner of the record log comes to,
    at once or some openings later, where the clock was set back meanwhile."""
    directory, whole = Path("/d"), MemoryFiles()
    RecordLog.open(directory, "r", whole, ManualClock()).close()
    for operation in range(1, whole.operations + 1):
        files = MemoryFiles()
        files.cut_power_at(operation)
        with contextlib.suppress(PowerCut):
            RecordLog.open(directory, "r", files, ManualClock()).close()
        for fate in range(20):
            after = files.crash(random.Random(f"{operation} {fate}"))
            for opening in range(4):
                log = RecordLog.open(directory, "r", after, ManualClock(ManualClock().wall_ms() - back_ms))
                assert [record.data for record in log.records()] == [b"%d" % n for n in range(opening)]
                log.append(b"%d" % opening).result()
                log.close()
            assert sum(name.endswith(".rlog") for name in after.list(directory)) == 1, (operation, fate)


def test_a_compaction_that_failed_leaves_no_trail(tmp_path: Path) -> None:
    """The generation that it claimed is used for the next try, not another one each time."""
    files = MemoryFiles()
    log = RecordLog.open(Path("/d"), "r", files)
    log.append(b"first").result()

    def fail(number: int, name: str, path: Path) -> None:
        if name == "datasync" and path.name.endswith(".rlog"):
            files.fail_at(number, DiskFault.ENOSPC)

    for _ in range(5):
        files.on_operation = fail
        with pytest.raises(StorageFailed):
            log.compact(lambda: b"all").result()
        files.on_operation = None
        assert log.append(b"more").result()
    assert len([name for name in files.list(Path("/d")) if name.endswith(".rlog")]) == 2
    log.compact(lambda: b"all").result()
    assert [record.data for record in log.records()] == [b"all"]
    log.close()
    assert len([name for name in files.list(Path("/d")) if name.endswith(".rlog")]) == 1


class BlindFiles(MemoryFiles):
    """The disk does not answer the first question after a generation was made."""

    blind = False
    made = False

    def create(self, path: Path) -> File:
        self.made = self.blind
        return super().create(path)

    def exists(self, path: Path) -> bool:
        if self.made:
            self.blind = self.made = False
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return super().exists(path)


def test_a_claim_that_failed_half_way_is_no_other_owner() -> None:
    """Its file is there. It was taken for that of a process that replaced this one."""
    files = BlindFiles()
    log = RecordLog.open(Path("/d"), "r", files)
    log.append(b"first").result()
    files.blind = True
    with pytest.raises(OSError, match="Input/output"):
        log.compact(lambda: b"all").result()
    with pytest.raises(OutcomeUnknown, match="while this owner made it"):
        log.append(b"second").result()
    with contextlib.suppress(PenstockError):
        log.close()
    again = RecordLog.open(Path("/d"), "r", files)
    assert [record.data for record in again.records()] == [b"first"]
    again.close()


def outstanding(files: MemoryFiles, gate: threading.Event) -> tuple[int, int]:
    """Twelve records of one size, all on their way at once; (how many were acknowledged, how many were sent)."""
    sent: list[Pending[int]] = []
    with contextlib.suppress(PowerCut):
        log = RecordLog.open(Path("/d"), "r", files)
        gate.clear()
        with contextlib.suppress(PowerCut):
            sent += [log.append(b"%04d" % n * 100) for n in range(12)]
        gate.set()
        with contextlib.suppress(PowerCut):
            log.close()
    return sum(pending.exception() is None for pending in sent), len(sent)


def test_nothing_of_a_torn_group_comes_back_after_later_records() -> None:
    """The tail of a torn group may hold whole frames: they must not follow what is written over its head later."""
    gate = threading.Event()
    gate.set()

    def wait_at_writes(_number: int, name: str, _path: Path) -> None:
        if name == "append":
            gate.wait(LIMIT_SECONDS)  # so that the rest of the records becomes one group

    for operation in range(14, 20):
        for fate in range(40):
            gate.set()
            files = MemoryFiles(wait_at_writes)
            files.cut_power_at(operation)
            acknowledged, sent = outstanding(files, gate)
            after = files.crash(random.Random(f"{operation} {fate}"))
            log = RecordLog.open(Path("/d"), "r", after)
            found = [record.data for record in log.records()]
            assert found == [b"%04d" % n * 100 for n in range(len(found))]
            assert acknowledged <= len(found) <= sent
            log.append(b"last" * 100).result()
            log.close()
            again = RecordLog.open(Path("/d"), "r", after.kill())
            assert [record.data for record in again.records()] == [*found, b"last" * 100]
            again.close()


def test_many_open_record_logs_hold_few_descriptors(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    logs = [RecordLog.open(tmp_path / "d", f"r{n}") for n in range(200)]
    for value in (b"a", b"b"):
        wait_all([log.append(value) for log in logs])
    assert descriptors() - before < 200 + 2 * 64 + 20  # a lock each, and the few that keep theirs
    for log in logs:
        log.rewrite([(b"all", ())])
        log.append(b"c").result()
        log.close()
    assert descriptors() <= before + 2
    again = RecordLog.open(tmp_path / "d", "r199")
    assert [record.data for record in again.records()] == [b"all", b"c"]
    again.close()


def test_a_missing_file_after_another_owner_came_is_fenced(tmp_path: Path) -> None:
    """The next owner removes files: where an old owner misses one, the disk is not to blame."""
    old = RecordLog.open(tmp_path, "name", UnlockedFiles())
    old.append(b"1").result()
    deposed = []

    def stumble() -> bytes:
        deposed.append(RecordLog.open(tmp_path, "name", UnlockedFiles()))
        raise FileNotFoundError("name-0000000000000001.rlog")

    with pytest.raises(Fenced):
        old.append_built(stumble).result()
    with pytest.raises(Fenced):
        old.append(b"2")
    with contextlib.suppress(Fenced):
        old.close()
    deposed[0].close()


def test_what_an_error_says_of_its_record() -> None:
    """`StorageFailed`: it never appears. `OutcomeUnknown`: the next owner may find it, as here: it is in the page cache."""
    files = MemoryFiles()
    log = RecordLog.open(Path("/d"), "r", files)
    log.append(b"first").result()
    waiting: list[Pending[int]] = []

    def fail(number: int, name: str, path: Path) -> None:
        if name == "datasync" and path.name.endswith(".rlog"):
            files.on_operation = None
            waiting.append(log.append(b"waits", wait=False))
            files.fail_at(number, DiskFault.EIO)

    files.on_operation = fail
    in_flight = log.append(b"in flight")
    with pytest.raises(OutcomeUnknown, match="nobody knows whether the last records are on the disk"):
        in_flight.result()
    with pytest.raises(StorageFailed):
        waiting[0].result()
    with pytest.raises(StorageFailed):
        log.append(b"later")
    killed = files.kill()
    with contextlib.suppress(PenstockError):
        log.close()
    again = RecordLog.open(Path("/d"), "r", killed)
    assert [record.data for record in again.records()] == [b"first", b"in flight"]
    again.close()


@pytest.mark.parametrize("compacts", [False, True])
def test_a_record_log_that_is_closed_in_a_callback_finishes_what_waits(
    *, compacts: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The callback runs on the thread that commits, for which also the end of a compaction waits."""
    records = RecordLog.open(tmp_path, "records")
    assert records.append(b"0").result(LIMIT_SECONDS) == 0
    began, held, waiting = threading.Event(), threading.Event(), threading.Event()

    def begin(_: object) -> None:
        began.set()
        held.wait(LIMIT_SECONDS)

    def close(_: object) -> None:
        assert waiting.wait(LIMIT_SECONDS)
        if compacts:
            wait_until(lambda: records._commits._queue, "the compaction waits for the thread of this callback")
        records.close()

    records.append(b"1").add_done_callback(begin)
    assert began.wait(LIMIT_SECONDS)
    compaction = records.compact(lambda: b"all so far") if compacts else None
    records.append(b"2").add_done_callback(close)
    held.set()
    if compaction is None:
        wait_until(lambda: not records._commits._queue, "the callback that closes is under way")
        later = [records.append(b"%d" % number) for number in range(3, 10)]
        waiting.set()
        assert [one.result(LIMIT_SECONDS) for one in later] == list(range(3, 10))
    else:
        waiting.set()
        compaction.exception(LIMIT_SECONDS)
    wait_until(lambda: records._closed, "closed")
    for thread in threading.enumerate():
        if thread.name.startswith("close of"):
            thread.join(LIMIT_SECONDS)
    with RecordLog.open(tmp_path, "records") as again:
        assert [one.number for one in again.records()][-1] == (2 if compacts else 9)
    assert not caplog.records
