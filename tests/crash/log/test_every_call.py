"""Each file operation of a whole life of a log fails once, in each way: no false answer, a typed error, a clean reopen.

The program is deterministic, so "each" is meant literally: open, appends, rolls, acks, a cursor's compaction, its creation
and deletion, a record log's rewrite, trim and close; and then each operation of the recovery of what a kill left. An owner
whose call failed goes on, too: what it acknowledges after that counts as much as what it acknowledged before.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import Corruption, Fenced, OutcomeUnknown, PenstockError, StorageFailed, Unavailable, fresh
from penstock.files.memory import DiskFault, MemoryFiles
from penstock.log import Log, LogSettings, Pending, Position, RecordLog
from penstock.metadata import MemoryMetadata, Operation
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


# -- an owner that goes on after a call of its own failed -----------------------------------------------------------------

_CALLS: dict[str, Callable[[Log], object]] = {
    "roll": Log.roll,
    "terminate": Log.terminate,
    "truncate": lambda log: log.truncate(Position(1, 1), force=True),
    "clear": Log.clear,
    "trim": Log.trim,
    "offload": lambda log: log.offload("file:///objects"),
    "properties": lambda log: log.set_properties({"a": "b"}),
    "maintain": Log.maintain,
}


class _Refusal:
    """Transactions of a metadata store fail, from one on."""

    def __init__(self, metadata: MemoryMetadata, number: int, error: PenstockError) -> None:
        self.left = number
        self._error = error
        self._inner = metadata.transaction
        metadata.transaction = self._transaction  # type: ignore[method-assign]

    def _transaction(self, operations: Sequence[Operation]) -> int:
        self.left -= 1
        if self.left == 0:
            raise fresh(self._error)
        return self._inner(operations)


def _go_on(call: str, break_it: Callable[[Machine], None], where: str) -> None:
    """The call fails at some step; whatever the log accepts and acknowledges after it must be found by the next owner."""
    machine = Machine()
    log = machine.open()
    log.open_cursor("c")
    for number in range(6):
        log.append(b"%d" % number).result()
    break_it(machine)
    with contextlib.suppress(PenstockError):
        _CALLS[call](log)
    acknowledged = {}
    for number in range(6, 9):
        with contextlib.suppress(PenstockError):
            position = log.append(b"%d" % number).result()
            acknowledged[position] = b"%d" % number
    for _ in range(2):  # once as its owner sees it, once as the next one does
        with contextlib.suppress(Fenced, OutcomeUnknown):
            found = {p: bytes(next(iter(log.read(p, p))).data) for p in acknowledged}
            assert found == acknowledged, where
        with contextlib.suppress(PenstockError):
            log.close()
        machine.files, machine.metadata = machine.files.kill(), machine.metadata.copy()
        log = machine.open()
    log.close()


@pytest.mark.parametrize("fault", list(DiskFault))
@pytest.mark.parametrize("call", list(_CALLS))
def test_an_owner_goes_on_after_each_failed_operation(call: str, fault: DiskFault) -> None:
    machine = Machine()
    log = machine.open()
    log.open_cursor("c")
    for number in range(6):
        log.append(b"%d" % number).result()
    before = machine.files.operations
    _CALLS[call](log)
    operations = machine.files.operations - before
    log.close()
    for offset in range(1, operations + 1):
        _go_on(call, lambda m, at=offset: m.files.fail_at(m.files.operations + at, fault), f"{call}, {offset}, {fault}")  # type: ignore[misc]


@pytest.mark.parametrize("error", [Unavailable("away"), StorageFailed("full"), Corruption("malformed")], ids=repr)
@pytest.mark.parametrize("call", list(_CALLS))
def test_an_owner_goes_on_after_the_metadata_store_failed(call: str, error: PenstockError) -> None:
    """None of these errors changes anything in the store, so the log may go on."""
    for number in range(1, 6):
        _go_on(call, lambda m, at=number: _Refusal(m.metadata, at, error) and None, f"{call}, {number}, {error!r}")  # type: ignore[misc]
