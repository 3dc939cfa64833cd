"""A backfill in several ranges that cannot go on in one of them ends, whatever the others have read ahead."""

from __future__ import annotations

import threading

import pytest

from penstock.capture.load import tables
from penstock.errors import PenstockError
from penstock.schema.model import TableSchema
from penstock.sources.load import KeyRange, LoadedRows, TableLoad
from penstock.sources.mysql import source as server_source
from penstock.sources.mysql.load.reader import ServerTableReader
from penstock.sources.position import SourcePosition
from tests.capture.load.loading import World
from tests.capture.load.test_ranges import fill, ranges

__all__ = ["ranges"]


def test_a_backfill_that_fails_in_one_range_is_over_in_all(
    world: World, ranges: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world, "negative")
    world.catch_up(start="now")
    others_have_read = threading.Event()

    class Failing(ServerTableReader):
        def read(
            self, table: TableSchema, load: TableLoad, part: KeyRange, low: SourcePosition, rows_max: int
        ) -> LoadedRows:
            if not part.after:  # the first range: after a chunk of another one is ready, too
                assert others_have_read.wait(10)
                raise PenstockError("a value that cannot be read")
            found = super().read(table, load, part, low, rows_max)
            others_have_read.set()
            return found

    monkeypatch.setattr(server_source, "ServerTableReader", Failing)
    monkeypatch.setattr(tables, "AHEAD_MAX", 1)
    done: list[object] = []
    asked = {"request": 1, "op": "backfill", "tables": [f"{world.database}.negative"]}
    thread = threading.Thread(
        target=lambda: done.append(world.catch_up(asked, start="now", snapshot={"parallel": 3})), daemon=True
    )
    thread.start()
    thread.join(20)
    assert done, "the load never ends"
