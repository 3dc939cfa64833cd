"""A second owner opens the log before each file operation of the first, which goes on as if it had slept in between.

Locks do not hold here, as on a file system that forgets them. What must hold: nothing that either owner was told is lost
or hidden, nothing that the old owner still writes is ever read, and the old owner's calls fail with `Fenced`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.errors import Fenced, PenstockError
from penstock.files import Buffer, File
from penstock.files.memory import MemoryFiles
from penstock.log import Log, LogReader, LogSettings, RecordLog
from penstock.log.records.generations import record_log_files
from penstock.metadata import MemoryMetadata

DIRECTORY = Path("/s/log")
SETTINGS = LogSettings(ledger_entries_max=3, preallocate_bytes=2048)
_CHANGES = {"create", "make_directory", "rename", "remove", "sync_directory"}
_FILE_CHANGES = {"append", "write_at", "truncate", "preallocate", "datasync"}


class Process:
    """The file system as one process sees it, without locks. `sleep_before` runs a function before its n-th operation."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files
        self._left = 0
        self._moment: Callable[[], None] = lambda: None

    def sleep_before(self, operation: int, moment: Callable[[], None]) -> None:
        self._left, self._moment = operation, moment

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._moment()
            return call(*arguments, **named)

        return wrapped

    @contextlib.contextmanager
    def lock(self, _path: Path) -> Iterator[None]:
        yield

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if name in _CHANGES:
            found = self.wrap(found)
        if name in {"create", "open"}:
            return lambda *arguments, **named: _File(self, found(*arguments, **named))
        return found


class _File:
    def __init__(self, process: Process, file: File) -> None:
        self._process = process
        self._file = file

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._process.wrap(self._file.append)(buffers)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file, name)
        return self._process.wrap(found) if name in _FILE_CHANGES else found


def read(files: Any, metadata: MemoryMetadata) -> list[bytes]:
    """As a new process reads it."""
    reader = LogReader.open(DIRECTORY, files, metadata)
    try:
        return [bytes(entry.data) for entry in reader.read(reader.first, reader.end())]
    finally:
        reader.close()


@pytest.mark.parametrize("entries", [1, 3, 4])
@pytest.mark.parametrize("operation", range(1, 24))
def test_a_second_owner_comes_while_the_first_appends(operation: int, entries: int) -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    old_process, new_process = Process(files), Process(files)
    told: list[bytes] = []
    opened: list[Log] = []

    def take_over() -> None:
        new = Log.open(DIRECTORY, SETTINGS, new_process, ManualClock(), metadata)
        opened.append(new)
        for data in (b"new 1", b"new 2"):
            new.append(data).result()
            told.append(data)

    old = Log.open(DIRECTORY, SETTINGS, old_process, ManualClock(), metadata)
    old.append(b"first").result()
    told.append(b"first")
    old_process.sleep_before(operation, take_over)
    pendings = [(data, old.append(data)) for data in (b"old %d" % n for n in range(entries))]
    for data, pending in pendings:
        with contextlib.suppress(Fenced):
            pending.result()
            told.append(data)
    came_in_time = bool(opened)
    if came_in_time:
        with pytest.raises(Fenced):
            old.append(b"late").result()
    with contextlib.suppress(PenstockError):
        old.close()
    if not opened:
        return
    (new,) = opened
    found = read(Process(files), metadata)
    assert set(told) <= set(found), "what was acknowledged is lost or hidden"
    assert len(found) == len(set(found)), "an entry is there twice"
    assert b"late" not in found
    new.append(b"new 3").result()
    new.close()
    assert read(Process(files), metadata)[-1] == b"new 3"
    third = Log.open(DIRECTORY, SETTINGS, Process(files), ManualClock(), metadata)
    assert [bytes(e.data) for e in third.read(third.reader().first, third.end())] == [*found, b"new 3"]
    third.close()


@pytest.mark.parametrize("operation", range(1, 26))
def test_a_third_owner_comes_while_the_second_opens_the_log(operation: int) -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    first = Log.open(DIRECTORY, SETTINGS, Process(files), ManualClock(), metadata)
    first.append(b"first").result()
    told = [b"first"]
    opened: list[Log] = []

    def take_over() -> None:
        third = Log.open(DIRECTORY, SETTINGS, Process(files), ManualClock(), metadata)
        opened.append(third)
        for data in (b"third 1", b"third 2"):
            third.append(data).result()
            told.append(data)

    process = Process(files)
    process.sleep_before(operation, take_over)
    with contextlib.suppress(PenstockError):
        second = Log.open(DIRECTORY, SETTINGS, process, ManualClock(), metadata)
        opened.append(second)
    for number, log in enumerate((first, *opened)):
        with contextlib.suppress(Fenced):
            log.append(b"late %d" % number).result()
            told.append(b"late %d" % number)
    with contextlib.suppress(PenstockError):
        first.close()
    for log in opened:  # grows where the third owner comes while the second closes
        with contextlib.suppress(PenstockError):
            log.close()
    found = read(Process(files), metadata)
    assert set(told) <= set(found), "what was acknowledged is lost or hidden"
    assert b"late 0" not in told, "the first owner was not fenced"


def records_of_a_third(files: MemoryFiles, old: RecordLog, new: RecordLog) -> list[bytes]:
    """The old owner is fenced, the new one appends once more, and a third one reads."""
    with pytest.raises(Fenced):
        old.append(b"late").result()
    with contextlib.suppress(PenstockError):
        old.close()
    new.append(b"new 2").result()
    new.close()
    third = RecordLog.open(DIRECTORY, "r", Process(files))
    found = [record.data for record in third.records()]
    third.close()
    return found


@pytest.mark.parametrize("operation", range(1, 14))
def test_a_second_owner_comes_while_the_first_writes_records(operation: int) -> None:
    files = MemoryFiles()
    old_process, new_process = Process(files), Process(files)
    opened: list[RecordLog] = []
    told: list[bytes] = []

    def take_over() -> None:
        new = RecordLog.open(DIRECTORY, "r", new_process)
        opened.append(new)
        new.append(b"new").result()
        told.append(b"new")

    old = RecordLog.open(DIRECTORY, "r", old_process)
    old.append(b"first").result()
    told.append(b"first")
    old_process.sleep_before(operation, take_over)
    for data in (b"old 1", b"old 2"):
        with contextlib.suppress(Fenced):
            old.append(data).result()
            told.append(data)
    if not opened:
        old.close()
        return
    found = records_of_a_third(files, old, *opened)
    assert {*told, b"new 2"} <= set(found), "what was acknowledged is lost"
    assert b"late" not in found


@pytest.mark.parametrize("how", ["rewrite", "compact"])
@pytest.mark.parametrize("operation", range(1, 12))
def test_a_second_owner_comes_while_the_first_rewrites(operation: int, how: str) -> None:
    files = MemoryFiles()
    old_process = Process(files)
    opened: list[RecordLog] = []
    told: list[bytes] = []

    def take_over() -> None:
        new = RecordLog.open(DIRECTORY, "r", Process(files))
        opened.append(new)
        new.rewrite([(b"all of the new one", ())])  # twice: the name that the old owner would use next comes and goes
        new.rewrite([(b"all of the new one", ())])
        told[:] = [b"all of the new one"]

    old = RecordLog.open(DIRECTORY, "r", old_process)
    old.append(b"first").result()
    old_process.sleep_before(operation, take_over)
    with contextlib.suppress(Fenced):
        if how == "rewrite":
            old.rewrite([(b"all", ())])
        else:
            old.compact(lambda: b"all").result()
    if not opened:
        old.close()
        return
    assert records_of_a_third(files, old, *opened) == [*told, b"new 2"]
    assert len([name for name in files.list(DIRECTORY) if name.endswith(".rlog")]) == 1


@pytest.mark.parametrize("operation", range(1, 14))
def test_a_third_owner_comes_while_the_second_opens(operation: int) -> None:
    files = MemoryFiles()
    first = RecordLog.open(DIRECTORY, "r", Process(files))
    first.append(b"first").result()
    told = [b"first"]
    opened: list[RecordLog] = []

    def take_over() -> None:
        third = RecordLog.open(DIRECTORY, "r", Process(files))
        opened.append(third)
        third.append(b"third").result()
        told.append(b"third")
        for _ in range(2):
            third.rewrite(list(third.records()))

    second_process = Process(files)
    second_process.sleep_before(operation, take_over)
    second = None
    with contextlib.suppress(Fenced):
        second = RecordLog.open(DIRECTORY, "r", second_process)
    if second is not None:
        with contextlib.suppress(Fenced):
            second.append(b"second").result()
            told.append(b"second")
        with contextlib.suppress(PenstockError):
            second.close()
    with pytest.raises(Fenced):
        first.append(b"late").result()
    for third in opened:
        with contextlib.suppress(Fenced):
            third.append(b"third, later").result()
            told.append(b"third, later")
            third.close()
    last = RecordLog.open(DIRECTORY, "r", Process(files))
    found = [record.data for record in last.records()]
    last.close()
    assert set(told) <= set(found)
    assert set(found) <= {*told, b"second"}  # "second" may be there though its owner got no answer


def test_the_owner_of_a_deleted_record_log_is_fenced_by_its_namesake() -> None:
    """A name may be used again, but generations are numbered on."""
    files, clock = MemoryFiles(), ManualClock()
    old = RecordLog.open(DIRECTORY, "r", Process(files), clock)
    old.append(b"old").result()
    for path in record_log_files(files, DIRECTORY, "r"):
        files.remove(path)
    clock.advance(1.0)
    new = RecordLog.open(DIRECTORY, "r", Process(files), clock)
    new.append(b"new").result()
    with pytest.raises(Fenced):
        old.append(b"late").result()
    with contextlib.suppress(PenstockError):
        old.close()
    assert [record.data for record in new.records()] == [b"new"]
    new.close()


@pytest.mark.parametrize("operation", range(1, 25))
def test_a_replaced_owner_moves_no_cursor(operation: int) -> None:
    """A truncation with force first moves the cursors that stand beyond it. It opens them, which takes time: who is the
    owner then?"""
    files, metadata = MemoryFiles(), MemoryMetadata()
    process = Process(files)
    old = Log.open(DIRECTORY, SETTINGS, process, metadata=metadata)
    positions = [old.append(b"entry").result() for _ in range(3)]
    cursor = old.open_cursor("a")
    cursor.mark_delete(positions[2]).result()
    cursor.close()
    found: list[Any] = []

    def take_over() -> None:
        new = Log.open(DIRECTORY, SETTINGS, Process(files), metadata=metadata)
        found.extend((new, new.open_cursor("a").mark_delete_position))

    process.sleep_before(operation, take_over)
    with contextlib.suppress(PenstockError):
        old.truncate(positions[0], force=True)
    if not found:  # it was done before
        take_over()
    for log in (old, found[0]):
        with contextlib.suppress(Fenced):
            log.close()
    third = Log.open(DIRECTORY, SETTINGS, Process(files), metadata=metadata)
    assert third.open_cursor("a").mark_delete_position == found[1]
    third.close()
