"""The capture process is killed again and again while it loads tables that others write to: nothing is lost, and no row is
loaded twice."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator

from penstock.entries.chunk import read_chunk
from penstock.entries.format import Kind, parse_entry
from penstock.log import LogReader
from tests.capture.load.loading import World
from tests.e2e.servers.captures import Captures

ROWS = 6_000
KILLS = 5
TABLES = ("a", "b", "c")
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999) SELECT i FROM n"


@contextlib.contextmanager
def writing(world: World, seed: int) -> Iterator[None]:
    """Somebody changes random rows of all tables until the end."""
    stop = threading.Event()

    def write() -> None:
        chance = random.Random(seed)
        with contextlib.closing(world.server.connect(world.database)) as connection, connection.cursor() as cursor:
            number = 0
            while not stop.is_set():
                number += 1
                table, key = chance.choice(TABLES), chance.randrange(3 * ROWS)
                cursor.execute(f"DELETE FROM {table} WHERE id = {chance.randrange(3 * ROWS)}")
                cursor.execute(f"REPLACE INTO {table} VALUES ({key}, 'n{number}')")
                cursor.execute(f"UPDATE {table} SET v = 'u{number}' WHERE id BETWEEN {key} AND {key + 9}")
                time.sleep(0.002)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_load_under_writes_survives_kills(world: World) -> None:
    for table in TABLES:
        world.run(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(40))",
            *(
                f"INSERT INTO {table} SELECT 3 * (i + {start}), CONCAT('old', i) FROM ({NUMBERS}) s"
                for start in range(0, ROWS, 1000)
            ),
        )
    source = world.settings(snapshot={"parallel": 2, "max_rows_per_second": ROWS // 3}).model_dump(
        mode="json", exclude_none=True
    )
    source["password"] = world.server.password
    captures = Captures(world.directory, source)
    chance = random.Random(1)
    with captures.ready(), writing(world, 1):
        loaded = partly = 0
        for _ in range(KILLS):
            capture = captures.start()
            assert capture.wait_for("ready")
            if chance.random() < 0.7:  # more is in the log than before
                while capture.said[-1]["load"]["rows"] <= loaded and capture.said[-1]["load"]["rows_left"]:
                    assert capture.wait_for("progress"), capture.said
            time.sleep(chance.random() * 0.2)
            capture.kill()
            assert not [event for event in capture.said if event["event"] == "error"], capture.said
            last = capture.said[-1]["load"]
            partly += last["rows"] > loaded and last["done"] < len(TABLES)
            loaded = last["rows"]
        assert partly > 1
    with captures.ready():
        report = captures.catch_up()
    assert report.said[-1]["load"]["done"] == len(TABLES)
    for table in TABLES:
        assert {row[0]: row[1] for row in world.rows(f"SELECT * FROM {table}")} == {
            row[0]: row[1] for row in world.table(table).values()
        }
    keys = loaded_keys(world)
    for table in TABLES:
        assert len(keys[table]) == len(set(keys[table])) > ROWS / 2, table


def test_a_backfill_that_was_answered_survives_kills(world: World) -> None:
    """It is asked for once; the capture process dies as soon as it has answered, and again while it loads."""
    world.run("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(40))")
    source = world.settings(start="now", snapshot={"max_rows_per_second": 500}).model_dump(
        mode="json", exclude_none=True
    )
    source["password"] = world.server.password
    world.catch_up(start="now", tables={"include": ["nobody.*"]})  # so that the log knows nothing of the table
    world.run(
        *(
            f"INSERT INTO a SELECT i + {start}, CONCAT('old', i) FROM ({NUMBERS}) s"
            for start in range(0, ROWS // 3, 1000)
        )
    )
    captures = Captures(world.directory, source)
    asked = {"request": 1, "op": "backfill", "tables": [f"{world.database}.a"]}
    with captures.ready():
        capture = captures.start()
        assert capture.wait_for("ready")
        capture.ask(asked)
        assert capture.wait_for("answer"), capture.said
        capture.kill()
        world.run("UPDATE a SET v = 'new' WHERE id % 7 = 0", "DELETE FROM a WHERE id % 11 = 0")
        for _ in range(2):
            capture = captures.start()
            assert capture.wait_for("ready")
            loaded = capture.said[-1]["load"]["rows"]
            while (load := capture.said[-1]["load"])["rows"] <= loaded and load["done"] < load["tables"]:
                assert capture.wait_for("progress"), capture.said
            world.run("UPDATE a SET v = 'newer' WHERE id % 13 = 0")
            capture.kill()
        report = captures.catch_up()
    load = report.said[-1]["load"]
    assert load["done"] == load["tables"] == 1 and not load["ended"]
    assert {row[0]: row[1] for row in world.rows("SELECT * FROM a")} == {
        row[0]: row[1] for row in world.table("a").values()
    }
    keys = loaded_keys(world)["a"]
    assert len(keys) == len(set(keys)) > ROWS / 6


def loaded_keys(world: World) -> dict[str, list[int]]:
    """The keys of all rows in chunks, by table."""
    found: dict[str, list[int]] = {table: [] for table in TABLES}
    reader = LogReader.open(world.directory / "log")
    for entry in reader.read(reader.first, reader.end()):
        if len(entry.data) and Kind.CHUNK in (parsed := parse_entry(entry.data)).transactions["kind"]:
            chunk = read_chunk(parsed)
            found[chunk.table] += chunk.columns[0].to_pylist()
    return found
