"""Tables of every kind of key, in chunks of a few rows: each chunk begins where the last one ended."""

from __future__ import annotations

import pytest

from penstock.capture.load import tables
from penstock.sources.source import SourceError
from tests.capture.load.loading import World

_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 39) SELECT"
_KEYS = {
    "negative": ("k BIGINT", "PRIMARY KEY (k)", f"{_NUMBERS} i * 3 - 60, i FROM n"),
    "unsigned_big": ("k BIGINT UNSIGNED", "PRIMARY KEY (k)", f"{_NUMBERS} 18446744073709551615 - i, i FROM n"),
    "composite": (
        "k VARCHAR(9), l INT, m DATE",
        "PRIMARY KEY (l, k, m)",  # not in the order of the columns
        f"{_NUMBERS} CONCAT('k', i % 5), i % 4, DATE('2024-01-01') + INTERVAL i DAY, i FROM n",
    ),
    "folded": (
        "k VARCHAR(20)",
        "PRIMARY KEY (k)",  # by a collation in which a and B and c are in this order
        f"{_NUMBERS} CONCAT(IF(i % 2, 'Ä''x', 'b\\\\'), CHAR(65 + i % 26), IF(i < 26, 'q', 'Z')), i FROM n",
    ),
    "latin": ("k VARCHAR(20) CHARACTER SET latin1", "PRIMARY KEY (k)", f"{_NUMBERS} CONCAT('é', i), i FROM n"),
    "binary_key": ("k VARBINARY(4)", "PRIMARY KEY (k)", f"{_NUMBERS} UNHEX(LPAD(HEX(i * 6), 4, '0')), i FROM n"),
    "enumerated": ("k ENUM('z','y','x','w'), l INT", "PRIMARY KEY (k, l)", f"{_NUMBERS} 1 + i % 4, i, i FROM n"),
    "moments": (
        "k TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), l TIME(3), d DECIMAL(20,4)",
        "PRIMARY KEY (k, l, d)",
        f"{_NUMBERS} TIMESTAMP('2024-01-01 10:00:00.000001') + INTERVAL i DIV 8 HOUR, SEC_TO_TIME(i DIV 2 - 10.5), i / 7, i FROM n",
    ),
}  # fmt: skip


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS_FIRST", 7)
    monkeypatch.setattr(tables, "ROWS_MAX", 7)


@pytest.mark.usefixtures("small_chunks")
def test_every_kind_of_key_is_read_to_its_end(world: World) -> None:
    for name, (columns, key, rows) in _KEYS.items():
        world.run(f"CREATE TABLE {name} ({columns}, v INT, {key})", f"INSERT INTO {name} {rows}")
    world.catch_up(snapshot={"parallel": 3})
    assert world.chunks() == 6 * len(_KEYS)
    rows = dict.fromkeys(_KEYS, 0)
    for batch in world.changes():
        rows[batch.table.table] += len(batch)
    assert rows == dict.fromkeys(_KEYS, 40)  # none of them twice
    for name in _KEYS:
        assert sorted(row[-1] for row in world.table(name).values()) == list(range(40)), name


def test_a_table_without_a_key_is_refused_by_name_and_can_be_left_out(world: World) -> None:
    world.run(
        "CREATE TABLE good (id INT PRIMARY KEY)", "INSERT INTO good VALUES (1)",
        "CREATE TABLE bare (id INT)", "INSERT INTO bare VALUES (1)",
    )  # fmt: skip
    with pytest.raises(SourceError, match=rf"{world.database}\.bare \(it has no primary key\)"):
        world.catch_up()
    assert world.chunks() == 0
    without = {"tables": {"include": ["*.*"], "exclude": ["*.bare"]}}
    world.catch_up(snapshot=without)
    world.run("INSERT INTO bare VALUES (2)")
    world.catch_up(snapshot=without)
    with pytest.raises(SourceError, match=rf"{world.database}\.bare \(it has no primary key\)"):
        world.catch_up()  # it is chosen again
    assert [batch.after[0].to_pylist() for batch in world.changes()] == [[1], [2]]
