"""Each file operation of a whole life of a log fails once, in each way: no false answer, a typed error, a clean reopen.

The program is deterministic, so "each" is meant literally: open, appends, rolls, acks, a cursor's compaction, its creation
and deletion, a record log's rewrite, trim and close; and then each operation of the recovery of what a kill left.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import PenstockError
from penstock.files.memory import DiskFault, MemoryFiles
from penstock.log import Log, LogSettings, Pending, Position, RecordLog
from penstock.metadata import MemoryMetadata
from tests.crash.log.world import small_limits
from tests.crash.stepping import STEPS, stepping

DIRECTORY = Path("/s/log")
SETTINGS = LogSettings(
    ledger_entries_max=4, preallocate_bytes=2048, retention_seconds=0.0, maintenance_interval_seconds=0
)


class Machine:
    """A disk and a metadata store, and the answers that the processes on them got."""

    def __init__(self) -> None:
        self.files, self.metadata = MemoryFiles(), MemoryMetadata()
        self.sent = 0
        self.entries: dict[int, Position] = {}
        self.acked: set[Position] = set()
        self.sent_acks: set[Position] = set()
        self.records: list[bytes] = []
        self.sent_records: list[bytes] = []
        self.trimmed = False

    def open(self) -> Log:
        return Log.open(DIRECTORY, SETTINGS, self.files, ManualClock(), self.metadata)

    def live(self) -> None:
        """One process, from open to close. Raises the first error that a caller sees."""
        log = self.open()
        try:
            self._work(log)
        finally:
            log.close()

    def _work(self, log: Log) -> None:
        cursor = log.open_cursor("c")
        for _ in range(3):
            for _ in range(3):
                self._append(log)
            STEPS.pump()
            self._ack(cursor.ack, random.Random(self.sent).choice(list(self.entries.values())))
        log.roll()
        passing = log.open_cursor("passing")
        passing.set_properties({"a": "b"}).result()
        log.delete_cursor("passing")
        with contextlib.closing(RecordLog.open(DIRECTORY, "r", self.files, ManualClock())) as records:
            for number in range(3):
                self._record(records, b"%d" % number)
            self.sent_records.append(b"all")
            records.rewrite([(b"all", ())])
            self.records = [b"all"]
            self._record(records, b"after")
        for position in sorted(self.entries.values())[:6]:
            self._ack(cursor.mark_delete, position, upto=True)
        self.trimmed = True
        log.trim()
        self._append(log)
        STEPS.pump()

    def _append(self, log: Log) -> None:
        self.sent += 1
        number = self.sent
        log.append(b"%d|" % number + bytes(200)).add_done_callback(lambda done: self._appended(number, done))

    def _appended(self, number: int, done: Pending[Position]) -> None:
        if done.exception() is None:
            self.entries[number] = done.result()

    def _ack(self, ack: Callable[[Position], Pending[None]], position: Position, *, upto: bool = False) -> None:
        these = {p for p in self.entries.values() if p == position or (upto and p <= position)}
        self.sent_acks |= these
        if upto and position <= max(self.acked, default=Position(0, -1)):
            return
        ack(position).result()
        self.acked |= these

    def _record(self, records: RecordLog, data: bytes) -> None:
        self.sent_records.append(data)
        records.append(data).result()
        self.records.append(data)

    def kill(self) -> None:
        self.files, self.metadata = self.files.kill(), self.metadata.copy()
        STEPS.reset()

    def check(self) -> None:
        """A new process finds everything that was told, nothing that was not sent, and can go on."""
        log = self.open()
        reader = log.reader()
        found = {entry.position: bytes(entry.data) for entry in reader.read(reader.first, log.end())}
        numbers = [int(data.split(b"|")[0]) for data in found.values()]
        assert numbers == sorted(set(numbers)), "out of order, or twice"
        assert all(1 <= number <= self.sent for number in numbers)
        for number, position in self.entries.items():
            gone = self.trimmed and position.ledger_id < reader.first.ledger_id
            assert gone or found.get(position, b"").startswith(b"%d|" % number), f"entry {number} is lost"
        if any(info.name == "c" for info in log.cursors()):
            cursor = log.open_cursor("c")
            assert all(cursor.is_acked(position) for position in self.acked), "an ack is lost"
            assert not [p for p in found if cursor.is_acked(p) and p not in self.sent_acks], "an ack of nobody"
        else:
            assert not self.acked
        if self.records:
            records = RecordLog.open(DIRECTORY, "r", self.files, ManualClock())
            data = [record.data for record in records.records()]
            assert data[: len(self.records)] == self.records or data[:1] == [b"all"], "records are lost"
            assert set(data) <= set(self.sent_records)
            records.close()
        self.sent += 1
        position = log.append(b"%d|goes on" % self.sent).result()
        assert position > max(self.entries.values(), default=Position(0, -1))
        log.close()
        STEPS.reset()


def operations(prepare: Callable[[], Machine], work: Callable[[Machine], None]) -> list[str]:
    """The file operations of `work`, by name."""
    machine = prepare()
    seen: list[str] = []
    machine.files.on_operation = lambda _number, name, _path: seen.append(name)
    work(machine)
    machine.files.on_operation = None
    machine.kill()
    return seen


def fail_each(prepare: Callable[[], Machine], work: Callable[[Machine], None], fault: DiskFault) -> None:
    names = operations(prepare, work)
    assert {"create", "append", "datasync", "sync_directory"} <= set(names)
    for offset in range(len(names)):
        machine = prepare()
        machine.files.fail_at(machine.files.operations + offset + 1, fault)
        where = f"operation {offset + 1} of {len(names)}, {names[offset]}, {fault.name}"
        try:
            work(machine)
        except PenstockError:
            pass
        except OSError as error:
            pytest.fail(f"{where}: not a typed error: {error!r}")
        machine.kill()
        if fault is DiskFault.EIO and offset % 2:  # a power cut too: it drops what a failed sync left in memory only
            machine.files = machine.files.crash(random.Random(offset))
            where += ", then a power cut"
        try:
            machine.check()
        except (AssertionError, PenstockError, OSError) as error:
            error.add_note(where)
            raise


@pytest.mark.parametrize("fault", list(DiskFault))
def test_every_call_of_a_life_fails_once(fault: DiskFault) -> None:
    with stepping(), small_limits():
        fail_each(Machine, Machine.live, fault)


@pytest.mark.parametrize("fault", list(DiskFault))
def test_every_call_of_a_recovery_fails_once(fault: DiskFault) -> None:
    """Of what a killed process left, with its last writes torn by a power cut."""

    def left() -> Machine:
        machine = Machine()
        machine.live()
        log = machine.open()
        cursor = log.open_cursor("c")
        for _ in range(5):
            machine._append(log)
        STEPS.pump()
        machine._ack(cursor.ack, machine.entries[machine.sent])
        machine._append(log)  # in flight when the power goes
        machine.files, machine.metadata = machine.files.crash(random.Random(9)), machine.metadata.copy()
        STEPS.reset()
        return machine

    with stepping(), small_limits():
        fail_each(left, Machine.check, fault)
