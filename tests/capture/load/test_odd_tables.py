"""Tables that are loaded with difficulty: what one of them lacks does not cost rows, and does not stop the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.capture.load import tables as tables_module
from penstock.schema.model import TableSchema
from tests.capture.load.loading import World
from tests.capture.load.test_backfill import backfill, chunk_rows, loaded  # noqa: F401
from tests.capture.load.test_meanwhile import Disturb, disturbed  # noqa: F401


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "ROWS_FIRST", 3)
    monkeypatch.setattr(tables_module, "ROWS_MAX", 3)


@pytest.mark.usefixtures("small_chunks")
def test_a_key_of_long_texts_that_differ_at_their_end(world: World) -> None:
    """No index has their order, and a server sorts by the first thousand bytes unless it is told."""
    world.run(
        "CREATE TABLE t (k BLOB NOT NULL, v INT, PRIMARY KEY (k(2000))) ROW_FORMAT=DYNAMIC",
        *(f"INSERT INTO t VALUES (CONCAT(REPEAT('x', 1500), CHAR({97 + 7 * i % 26})), {i})" for i in range(20)),
    )
    world.catch_up()
    assert sorted(row[1] for row in world.table("t").values()) == list(range(20))


@pytest.mark.usefixtures("small_chunks")
def test_years_zero_dates_bits_and_sets_as_keys(world: World) -> None:
    kinds = {
        "years": ("YEAR", [0, *range(1950, 1960), 2155]),
        "dates": ("DATE", ["0000-00-00", "2024-00-00", "2024-01-00", *(f"2024-01-{d:02}" for d in range(1, 9))]),
        "moments": ("DATETIME", ["0000-00-00 00:00:00", *(f"2024-01-01 00:00:{d:02}" for d in range(9))]),
        "stamps": ("TIMESTAMP", ["0000-00-00 00:00:00", *(f"2024-10-27 01:30:{d:02}" for d in range(9))]),
        "floats": ("FLOAT", [-1.5, -0.1, 0, 0.1, 0.2, 0.3, 1e30, 1.17549e-38, 3.4e38]),
        "doubles": ("DOUBLE", [-1e300, -0.1, 0, 0.1, 0.1 + 0.2, 0.3, 1e-300, 1.7e308]),
        "bits": ("BIT(64)", [0, 1, 255, 256, 2**63, 2**64 - 1]),
        "sets": ("SET('a','b','c')", list(range(8))),
        "times": ("TIME(6)", ["-838:59:59", "-00:00:00.000001", "00:00:00", "00:00:00.5", "838:59:59"]),
        "bytes_": ("VARBINARY(3)", ["", "a", "b", "ab", "abc"]),
    }
    for name, (kind, values) in kinds.items():
        rows = ", ".join(f"({value!r}, {i})" for i, value in enumerate(values))
        world.run(
            "SET sql_mode = ''", f"CREATE TABLE {name} (k {kind} NOT NULL PRIMARY KEY, v INT)",
            f"INSERT INTO {name} VALUES {rows}",
        )  # fmt: skip
    world.catch_up()
    found = {name: sorted(row[1] for row in world.table(name).values()) for name in kinds}
    assert found == {name: list(range(len(values))) for name, (_, values) in kinds.items()}
    rows = sum(len(batch) for batch in world.changes())
    assert rows == sum(len(values) for _, values in kinds.values())  # none of them twice


def test_a_backfill_of_a_table_that_loses_its_key_ends_and_the_flow_does_not(
    loaded: World,  # noqa: F811
    disturbed: Callable[[Disturb], None],  # noqa: F811
) -> None:
    def disturb(when: str, table: TableSchema, number: int) -> None:
        if (when, number) == ("after", 2):
            loaded.run("ALTER TABLE t DROP PRIMARY KEY", "INSERT INTO t VALUES (100, 0)")

    disturbed(disturb)
    said: list[dict[str, Any]] = backfill(loaded, "t")["said"]
    load = said[-1]["load"]
    assert load["done"] == load["tables"] == 1
    assert "lost its" in load["ended"][0]["note"]
    loaded.catch_up(start="now")


@pytest.mark.usefixtures("small_chunks")
def test_what_came_since_a_chunk_was_read_is_trimmed_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sink was faster: the log does not have the changes any more that the chunk must be cleaned of."""
    from penstock.capture.load.initial_load import InitialLoad
    from penstock.log import Position, Trimmed

    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    real, times = InitialLoad._cleaned, []

    def cleaned(self: InitialLoad, *arguments: Any) -> Any:
        times.append(1)
        if len(times) == 1:
            raise Trimmed(Position(0, 0), Position(1, 0))
        return real(self, *arguments)

    monkeypatch.setattr(InitialLoad, "_cleaned", cleaned)
    writes = iter(range(100))
    reader_read = tables_module.TableReaders._read

    def read(self: tables_module.TableReaders, *arguments: Any) -> None:
        world.run(f"INSERT INTO t VALUES ({100 + next(writes)}, 0)")
        reader_read(self, *arguments)

    monkeypatch.setattr(tables_module.TableReaders, "_read", read)
    world.catch_up()
    assert times and dict(world.rows("SELECT id, v FROM t")) == {row[0]: row[1] for row in world.table("t").values()}


def test_a_condition_for_which_the_server_takes_long(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends nothing before it has found enough rows; that is no reason to believe that it is gone."""
    from penstock.sources.mysql.connection import QUERY_SECONDS_MAX
    from penstock.sources.mysql.load import reader

    waits: list[float] = []
    select = reader.select

    def watched(connection: Any, *arguments: Any) -> Any:
        waits.append(connection._read_timeout)
        return select(connection, *arguments)

    monkeypatch.setattr(reader, "select", watched)
    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    world.catch_up()
    assert set(waits) == {QUERY_SECONDS_MAX}
    waits.clear()
    load = backfill(world, "t", start="snapshot", where="v > 2")["said"][-1]["load"]
    assert load["rows"] == 1 and not load["ended"] and min(waits) > 10 * QUERY_SECONDS_MAX
