"""A chunk that takes long, while every sink passes what comes meanwhile and the log is trimmed behind them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.load import keeping
from penstock.capture.load.keeping import PIN, ChunkPin
from penstock.log import Log, LogSettings
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.sources.load import KeyRange, LoadedRows, TableLoad
from penstock.sources.mysql import source as server_source
from penstock.sources.mysql.load.reader import ServerTableReader
from penstock.sources.position import SourcePosition
from penstock.state.checkpoints.recovery import PIN as STATE_PIN
from penstock.state.checkpoints.recovery import START_PIN
from tests.capture.load.loading import World
from tests.capture.load.test_backfill import chunk_rows


def test_what_came_since_a_long_chunk_was_begun_is_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "LOOK_SECONDS", 0.05)
    logs: list[Log] = []
    open_log = Log.open

    def opened(directory: Path) -> Log:
        logs.append(open_log(directory, LogSettings(ledger_entries_max=1, retention_seconds=0)))
        return logs[-1]

    monkeypatch.setattr(Log, "open", opened)
    reads: list[int] = []

    class Slow(ServerTableReader):
        def read(
            self, table: TableSchema, load: TableLoad, part: KeyRange, low: SourcePosition, rows_max: int
        ) -> LoadedRows:
            reads.append(1)
            if len(reads) > 3:
                raise AssertionError("it is read again and again")
            found = super().read(table, load, part, low, rows_max)
            while PIN not in logs[-1].pins():
                time.sleep(0.01)
            pinned = logs[-1].pins()[PIN]
            for value in range(5):
                world.run(f"UPDATE t SET v = {value} WHERE id = 1", f"UPDATE t SET v = {value} WHERE id = 1000")
            while logs[-1].end() < Position(pinned.ledger_id + 5, 0):
                time.sleep(0.01)
            for name in (START_PIN, STATE_PIN):  # as of a log that has checkpoints enough
                logs[-1].unpin(name)
            assert pinned.ledger_id not in logs[-1].trim()
            return replace(found, high=self.now())

    monkeypatch.setattr(server_source, "ServerTableReader", Slow)
    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 9), (2, 9)")
    world.catch_up()
    assert len(reads) == 1 and chunk_rows(world) == {"t": [2]}
    with contextlib.closing(Log.open(world.directory / "log")) as log:
        assert PIN not in log.pins()  # nothing is kept when it is over


def test_a_pin_of_a_process_that_was_killed_goes_and_a_full_log_takes_it_away(tmp_path: Any) -> None:
    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    clock: Any = Clock()
    log = Log.open(tmp_path / "log")
    try:
        log.pin(PIN, log.end())
        pin = ChunkPin(log, clock)
        assert PIN not in log.pins()
        pin.look(log.end())
        assert PIN not in log.pins()  # most chunks are soon over
        pin.look(log.end())
        assert PIN in log.pins()
        pin.release()
        assert PIN not in log.pins()
        pin.look(log.end())  # the chunk is still under way
        assert PIN in log.pins()
        pin.look(None)
        assert PIN not in log.pins()
    finally:
        log.close()
