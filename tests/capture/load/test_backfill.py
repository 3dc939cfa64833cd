"""`penstock backfill` on the side of capture: what is asked for is durable, is loaded beside the stream, and what cannot be
is said without ending the flow."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.capture.load import tables as tables_module
from penstock.entries.chunk import read_chunk
from penstock.entries.format import Kind, parse_entry
from penstock.log import LogReader
from penstock.schema.model import TableSchema
from tests.capture.load.loading import World
from tests.capture.load.test_meanwhile import Disturb, disturbed  # noqa: F401

NUMBERS = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) SELECT i FROM n) s"


@pytest.fixture
def loaded(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two tables that were never loaded: the log began with `start: now`. Chunks have ten rows."""
    monkeypatch.setattr(tables_module, "ROWS_FIRST", 10)
    monkeypatch.setattr(tables_module, "ROWS_MAX", 10)
    for table in ("t", "u"):
        world.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} SELECT i, i * 10 FROM {NUMBERS}"
        )
    world.catch_up(start="now")
    assert world.chunks() == 0
    return world


def backfill(world: World, *tables: str, where: str = "", **values: Any) -> dict[str, Any]:
    """The answer to a request, and under `said` what capture reported until it had caught up."""
    request = {
        "request": 1,
        "op": "backfill",
        "tables": [f"{world.database}.{name}" for name in tables],
        "where": where,
    }
    said = world.catch_up(request, **{"start": "now", **values})
    (answer,) = [event for event in said if event["event"] == "answer"]
    return {**answer.get("result", answer.get("error")), "said": said}


def chunk_rows(world: World) -> dict[str, list[int]]:
    """The keys of the rows in chunks, by table, in the order of the log."""
    found: dict[str, list[int]] = {}
    reader = LogReader.open(world.directory / "log")
    for entry in reader.read(reader.first, reader.end()):
        if len(entry.data) and Kind.CHUNK in (parsed := parse_entry(entry.data)).transactions["kind"]:
            chunk = read_chunk(parsed)
            found.setdefault(chunk.table, []).extend(chunk.columns[0].to_pylist())
    return found


def test_the_rows_of_a_table_come_once_and_again_when_asked_again(loaded: World) -> None:
    answer = backfill(loaded, "t")
    assert [one["table"] for one in answer["tables"]] == [f"{loaded.database}.t"] and not answer["refused"]
    assert chunk_rows(loaded) == {"t": list(range(1, 61))}
    load = answer["said"][-1]["load"]
    assert (load["tables"], load["done"], load["rows"], load["begun_ms"]) == (1, 1, 60, answer["begun_ms"])
    loaded.catch_up(start="now")
    assert chunk_rows(loaded) == {"t": list(range(1, 61))}  # what is done is not done again by a restart
    backfill(loaded, "?")
    assert {table: sorted(keys) for table, keys in chunk_rows(loaded).items()} == {
        "t": sorted(2 * list(range(1, 61))),
        "u": list(range(1, 61)),
    }


def test_only_rows_that_meet_the_condition_come(loaded: World) -> None:
    backfill(loaded, "t", where="v > 300 OR (id IN (3, 5) AND v <> ')')")
    assert chunk_rows(loaded) == {"t": [3, 5, *range(31, 61)]}


def test_a_row_that_leaves_the_condition_meanwhile_is_not_loaded_as_it_was(
    loaded: World,
    disturbed: Callable[[Disturb], None],  # noqa: F811
) -> None:
    def disturb(when: str, table: TableSchema, number: int) -> None:
        if number == 1:
            changed = (1, 2) if when == "before" else (3, 4)
            loaded.run(
                f"UPDATE t SET v = -1 WHERE id = {changed[0]}", f"DELETE FROM t WHERE id = {changed[1]}",
                f"UPDATE t SET v = 7 WHERE id = {50 + changed[0]}",
            )  # fmt: skip

    disturbed(disturb)
    backfill(loaded, "t", where="v BETWEEN 0 AND 50")
    found = loaded.table("t")
    assert {key: row[1] for key, row in found.items()} == {
        (1,): -1, (3,): -1, (5,): 50, (51,): 7, (53,): 7,
    }  # fmt: skip
    for (key,), (_, value) in found.items():
        assert loaded.rows(f"SELECT v FROM t WHERE id = {key}") == [(value,)]


def test_a_condition_that_is_none_begins_nothing(loaded: World) -> None:
    wrong = {
        "1 = 1) OR (1 = 1": "parenthesis",
        "(1 = 1": "parenthesis",
        "1 = 1 -- ": "without comments",
        "1 = 1 /* ) */": "without comments",
        "1 = 1; DROP TABLE t": "without comments and semicolons",
        "'open": "cannot be read",
        " ": "is empty",
        "nothing = 1": "does not fit .*t: .*nothing",
        "id = 1 ORDER BY id": "does not fit",
    }
    names = [f"{loaded.database}.t"]
    requests = [{"request": where, "op": "backfill", "tables": names, "where": where} for where in wrong]
    said = [event for event in loaded.catch_up(*requests, start="now") if event["event"] == "answer"]
    assert [event["request"] for event in said] == list(wrong)
    for event, message in zip(said, wrong.values(), strict=True):
        assert re.search(message, event["error"]["message"]), event
    assert chunk_rows(loaded) == {}


def test_what_cannot_be_loaded_is_said_by_name(loaded: World) -> None:
    loaded.run("CREATE TABLE bare (id INT)", "INSERT INTO bare VALUES (1)")
    name = f"{loaded.database}.bare"
    assert backfill(loaded, "bare")["message"] == f"{name} cannot be loaded: it has no primary key"
    assert "is no table of the source that this flow follows" in backfill(loaded, "t", "elsewhere*")["message"]
    assert chunk_rows(loaded) == {}
    answer = backfill(loaded, "*")  # a pattern takes what it can, and says the rest
    assert answer["refused"] == [{"table": name, "reason": "it has no primary key"}]
    assert set(chunk_rows(loaded)) == {"t", "u"}


def test_a_second_one_of_a_table_is_refused_while_the_first_is_under_way(loaded: World) -> None:
    names = [f"{loaded.database}.t"]
    requests = [{"request": number, "op": "backfill", "tables": names} for number in (1, 2)]
    said = loaded.catch_up(*requests, start="now")
    first, second = (event for event in said if event["event"] == "answer")
    assert first["result"]["tables"] and "is being loaded already" in second["error"]["message"]
    assert chunk_rows(loaded) == {"t": list(range(1, 61))}


def test_a_backfill_that_cannot_go_on_ends_and_the_flow_does_not(
    loaded: World,
    disturbed: Callable[[Disturb], None],  # noqa: F811
) -> None:
    def disturb(when: str, table: TableSchema, number: int) -> None:
        if (when, number) == ("after", 2):
            loaded.run("ALTER TABLE t DROP COLUMN v", "INSERT INTO t VALUES (100)")

    disturbed(disturb)
    load = backfill(loaded, "t", where="v > 0")["said"][-1]["load"]
    assert load["done"] == load["tables"] == 1
    (ended,) = load["ended"]
    assert ended["table"] == f"{loaded.database}.t" and ended["note"]
    assert (100,) in loaded.table("t")
    loaded.catch_up(start="now")


def test_a_table_of_which_the_log_knows_nothing_is_loaded(world: World) -> None:
    """The log began at a place in the binlog, where no table was asked for."""
    world.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    world.catch_up(start="now", tables={"include": [f"{world.database}.other"]})
    world.run("INSERT INTO t VALUES (3, 3)")
    backfill(world, "t")
    world.run("UPDATE t SET v = 9 WHERE id = 1")
    world.catch_up(start="now")
    assert world.table("t") == {(1,): (1, 9), (2,): (2, 2), (3,): (3, 3)}
