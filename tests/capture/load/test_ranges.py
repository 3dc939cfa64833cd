"""One table in several ranges of its key: each row once, whatever the key's type, over a stop in the middle, and beside
others who write."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.capture.load import tables
from penstock.errors import PenstockError
from penstock.schema.model import TableSchema
from penstock.sources.load import KeyRange, LoadedRows, TableLoad
from penstock.sources.mysql import source as server_source
from penstock.sources.mysql.load.reader import ServerTableReader
from penstock.sources.position import SourcePosition
from tests.capture.load.loading import World
from tests.capture.load.test_backfill import chunk_rows

ROWS = 400
_NUMBERS = f"(WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS - 1}) SELECT i FROM n) s"
_KEYS = {
    "negative": ("k BIGINT", "k", "i * 3 - 600"),
    "far_apart": ("k BIGINT UNSIGNED", "k", "IF(i < 10, i, 18446744073709551000 + i)"),
    "second": ("t INT, k INT", "t, k", "7, i"),
    "pairs": ("k INT, e ENUM('z','y'), l INT", "k, e, l", "i DIV 4, 1 + i % 2, i"),
    "folded": ("k VARCHAR(40) CHARACTER SET utf8mb4", "k", "CONCAT('Key-', SUBSTR(MD5(i), 1, 12))"),
    "exact": ("k VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_bin", "k", "CONCAT(CHAR(65 + i % 57), i)"),
    "bytes": ("k VARBINARY(16)", "k", "UNHEX(MD5(i))"),
    "prices": ("k DECIMAL(20,4)", "k", "(i - 200) * 1.2501"),
    "moments": ("k DATETIME(3), l INT", "k, l", "TIMESTAMP('2024-03-30') + INTERVAL i DIV 3 HOUR, i"),
}


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Small chunks and ranges. The dictionary gets how many ranges each table is read in."""
    monkeypatch.setattr(tables, "ROWS_FIRST", 16)
    monkeypatch.setattr(tables, "ROWS_MAX", 16)
    monkeypatch.setattr(tables, "RANGE_ROWS_MIN", 40)
    found: dict[str, int] = {}

    class Watched(ServerTableReader):
        def split(self, table: TableSchema, load: TableLoad, parts: int) -> tuple[KeyRange, ...]:
            made = super().split(table, load, parts)
            found[table.table] = len(made)
            return made

    monkeypatch.setattr(server_source, "ServerTableReader", Watched)
    return found


def fill(world: World, name: str) -> None:
    columns, key, values = _KEYS[name]
    world.run(
        f"CREATE TABLE {name} ({columns}, v INT, PRIMARY KEY ({key}))",
        f"INSERT INTO {name} SELECT {values}, i FROM {_NUMBERS}",
    )
    world.rows(f"ANALYZE TABLE {name}")


def loaded(world: World) -> dict[str, Counter[Any]]:
    """How often each value of the column `v` is in the log, by table."""
    found: dict[str, Counter[Any]] = {}
    for batch in world.changes():
        found.setdefault(batch.table.table, Counter()).update(batch.after[-1].to_pylist())
    return found


def test_each_row_comes_once_from_one_of_the_ranges(world: World, ranges: dict[str, int]) -> None:
    for name in _KEYS:
        fill(world, name)
    world.catch_up(snapshot={"parallel": 3})
    assert loaded(world) == {name: Counter(range(ROWS)) for name in _KEYS}
    assert {name: count > 2 for name, count in ranges.items()} == dict.fromkeys(_KEYS, True), ranges


def test_a_load_goes_on_in_each_of_its_ranges(
    world: World, ranges: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in the middle again and again. What others change meanwhile comes out as it is in the end."""
    fill(world, "negative")
    read: list[KeyRange] = []
    stop = 4

    class Failing(ServerTableReader):
        def read(
            self, table: TableSchema, load: TableLoad, part: KeyRange, low: SourcePosition, rows_max: int
        ) -> LoadedRows:
            read.append(part)
            if len(read) == stop:
                raise PenstockError("stopped on purpose")
            found = super().read(table, load, part, low, rows_max)
            key = -600 + 3 * (len(read) * 37 % ROWS)
            world.run(f"UPDATE negative SET v = v + 1000 WHERE k = {key}", f"DELETE FROM negative WHERE k = {key + 3}")
            return found

    monkeypatch.setattr(server_source, "ServerTableReader", Failing)
    for _ in range(3):
        with pytest.raises(PenstockError, match="stopped on purpose"):
            world.catch_up(snapshot={"parallel": 2})
        stop += len(read) + 4
    stop = 0
    world.catch_up(snapshot={"parallel": 2})
    world.catch_up()  # what was changed after the last SELECT is beyond the end that the load was asked to come to
    assert {row[0]: row[1] for row in world.table("negative").values()} == dict(world.rows("SELECT k, v FROM negative"))
    keys = chunk_rows(world)["negative"]
    assert len(keys) == len(set(keys)) > ROWS / 2
    assert len({part.until for part in read}) > 2  # several ranges
