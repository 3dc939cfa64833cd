"""Two processes on one cursor: what the slower of them may not undo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.files import RealFiles
from penstock.log import Cursor, CursorTable, Log, LogReader, LogSettings

SETTINGS = LogSettings(ledger_entries_max=5, retention_seconds=0, maintenance_interval_seconds=0)


class SlowFiles(RealFiles):
    """Calls `meanwhile` once, after the next sync of a directory."""

    meanwhile: Callable[[], None] | None = None

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
