"""Two processes on one cursor: what the slower of them may not undo."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Fenced
from penstock.files import RealFiles
from penstock.log import Cursor, CursorTable, Log, LogReader, LogSettings
from penstock.log.cursors.registry import Registered, find
from penstock.log.read.reader import default_metadata_path
from penstock.metadata import SqliteMetadata

SETTINGS = LogSettings(ledger_entries_max=5, retention_seconds=0, maintenance_interval_seconds=0)


class SlowFiles(RealFiles):
    """Calls `meanwhile` once, after the next sync of a directory, and `before_lock` once, before the next lock."""

    meanwhile: Callable[[], None] | None = None
    before_lock: Callable[[], None] | None = None

    @contextlib.contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        before, self.before_lock = self.before_lock, None
        if before is not None:
            before()
        with super().lock(path):
            yield

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()


def test_a_deletion_leaves_the_cursor_alone_that_was_made_anew_meanwhile(tmp_path: Path) -> None:
    """The slow process removed the files and not yet the registration; the other one finishes that, makes the cursor anew,
    and gets as far with its registration as the old one had been. Trim must see the new one."""
    log = Log.open(tmp_path / "log", SETTINGS)
    for n in range(20):
        log.append(b"%d" % n).result(5)
    log.open_cursor("c").close()
    slow = SlowFiles()
    first = CursorTable(LogReader.open(tmp_path / "log"), files=slow)
    second = CursorTable(LogReader.open(tmp_path / "log"))
    made: list[Cursor] = []

    def other_process() -> None:
        cursor = second.open("c")
        entries = cursor.read(6)
        cursor.ack(entries[0].position, entries[5].position).result(5)
        assert cursor._acks._pointer is not None
        cursor._acks._pointer.publish(cursor._acks._current)
        made.append(cursor)

    slow.meanwhile = other_process
    first.delete("c")
    (cursor,) = made
    assert [info.name for info in second.infos()] == ["c"]
    assert log.trim() == [1]
    assert cursor.backlog() == 14
    assert [bytes(entry.data) for entry in cursor.read(100)] == [b"%d" % n for n in range(6, 20)]
    first.close()
    second.close()
    log.close()


def test_an_owner_that_ends_while_the_next_one_opens_leaves_it_a_cursor_that_works(tmp_path: Path) -> None:
    """The old owner publishes its last mark-delete after the new one has looked at the registration: the new one took
    that for a third owner, never published again, so that trim stood still, and refused to reset."""
    log = Log.open(tmp_path / "log", SETTINGS)
    positions = [log.append(b"%d" % n).result(5) for n in range(20)]
    old = log.open_cursor("c")
    old.ack(positions[0], positions[6]).result(5)
    slow = SlowFiles()
    slow.before_lock = old.close
    table = CursorTable(LogReader.open(tmp_path / "log"), files=slow)
    cursor = table.open("c")
    cursor.ack(positions[7], positions[16]).result(5)
    assert cursor._acks._pointer is not None
    cursor._acks._pointer.publish(cursor._acks._current)
    assert log.trim() == [1, 2, 3]
    cursor.reset(positions[17]).result(5)
    assert [bytes(entry.data) for entry in cursor.read(100)] == [b"17", b"18", b"19"]
    table.close()
    log.close()


class ForgetfulFiles(RealFiles):
    """Locks do not hold, as on a file system that forgets them."""

    @contextlib.contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        yield


class SlowMetadata(SqliteMetadata):
    """Calls `meanwhile` once, before the next change of a single key."""

    meanwhile: Callable[[], None] | None = None

    def put(self, key: str, value: bytes, expected: int) -> int:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().put(key, value, expected)


def test_an_opener_that_was_replaced_leaves_the_registration_to_the_next_owner(tmp_path: Path) -> None:
    """It had its records, and not yet the registration: taking that over, it kept the owner from resetting."""
    log = Log.open(tmp_path / "log", SETTINGS)
    positions = [log.append(b"%d" % n).result(5) for n in range(20)]
    log.open_cursor("c").close()
    metadata = SlowMetadata(default_metadata_path(tmp_path / "log"), must_exist=True)
    first = CursorTable(LogReader.open(tmp_path / "log", metadata=metadata), files=ForgetfulFiles())
    second = CursorTable(LogReader.open(tmp_path / "log"), files=ForgetfulFiles())
    owners: list[Cursor] = []
    metadata.meanwhile = lambda: owners.append(second.open("c"))
    with pytest.raises(Fenced):
        first.open("c")
    (owner,) = owners
    owner.ack(positions[0], positions[16]).result(5)
    owner.reset(positions[17]).result(5)
    assert [bytes(entry.data) for entry in owner.read(100)] == [b"17", b"18", b"19"]
    first.close()
    second.close()
    metadata.close()
    log.close()


class _SlowTable(CursorTable):
    """A process whose opening of a cursor is slow, at one of two places."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, place: str, meanwhile: Callable[[], None]):
        files = SlowFiles()
        super().__init__(LogReader.open(directory), files=files)
        if place == "before the lock":
            files.before_lock = meanwhile
            return
        waiting = [meanwhile]

        def slowly(*arguments: Any) -> Registered | None:
            found = find(*arguments)
            if waiting:
                waiting.pop()()
            return found

        monkeypatch.setattr("penstock.log.cursors.opening.find", slowly)


_PLACES = pytest.mark.parametrize("place", ["before the lock", "before anything of it is looked at"])


@_PLACES
def test_a_cursor_that_is_deleted_while_it_is_opened_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """As by the expiry: what it had unused for weeks may be opened in that moment. Nothing of it is damaged."""
    with Log.open(tmp_path / "log", SETTINGS) as log:
        log.append(b"0").result(5)
        log.open_cursor("c", "latest").close()
        table = _SlowTable(tmp_path / "log", monkeypatch, place, lambda: log.delete_cursor("c"))
        assert [entry.data for entry in table.open("c").read()] == [b"0"]
        (info,) = log.cursors()
        assert (info.name, info.damage) == ("c", "")
        table.close()


@_PLACES
def test_a_cursor_that_is_made_while_it_is_opened_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It was not used yet: its records say no more than those of a making that was cut short."""
    with Log.open(tmp_path / "log", SETTINGS) as log:
        log.append(b"0").result(5)
        make = lambda: log.open_cursor("c", "earliest").close()  # noqa: E731
        table = _SlowTable(tmp_path / "log", monkeypatch, place, make)
        assert [entry.data for entry in table.open("c", "latest").read()] == [b"0"]
        table.close()
        assert [entry.data for entry in log.open_cursor("c").read()] == [b"0"]
