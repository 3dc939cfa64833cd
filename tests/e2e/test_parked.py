"""A real MariaDB and a statement that parks its table: everything else goes on, and the table too once it is resumed."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.delivery.rig import local_objects
from tests.e2e.flow import Flow, penstock
from tests.e2e.load import source_of
from tests.support.waiting import wait_until
from tools.components.mariadb import MariaDbServer

pytestmark = [pytest.mark.spark, pytest.mark.mariadb]
DATABASE = "parked"
PARK, UNPARK = "ALTER TABLE orders ADD SYSTEM VERSIONING", "ALTER TABLE orders DROP SYSTEM VERSIONING"
# While it is versioned a table has two more columns, which SHOW CREATE TABLE does not show.
FLUSH = {"size": "1MiB", "every": "300ms"}
VERSIONED = """CREATE TABLE orders (id int NOT NULL PRIMARY KEY, v varchar(20), row_start timestamp(6) NOT NULL,
               row_end timestamp(6) NOT NULL) CHARSET=utf8mb4"""


@pytest.fixture
def flow(mariadb_server: MariaDbServer, tmp_path: Path) -> Iterator[Flow]:
    flow = Flow(
        tmp_path,
        source_of(mariadb_server, DATABASE),
        {
            "lake": {"format": "parquet", "flush": FLUSH},
            "others": {"format": "parquet", "flush": FLUSH, "only": [f"{DATABASE}.items"]},  # where nothing is parked
        },
    )
    try:
        yield flow
    finally:
        flow.kill()


def status(flow: Flow) -> tuple[int, dict[str, Any]]:
    done = penstock("status", "-c", flow.config, "--json")
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


def resume(flow: Flow, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return penstock("resume", f"{DATABASE}.orders", "-c", flow.config, "--json", *arguments)


def delays(flow: Flow, number: int) -> dict[str, float]:
    """How long from now on it takes until the row of `items` is in the files of each sink."""
    begun, seen = time.monotonic(), dict[str, float]()

    def are_there() -> bool:
        for sink in {"lake", "others"} - seen.keys():
            if number in rows_of(flow, "items", sink):
                seen[sink] = time.monotonic() - begun
        return len(seen) == 2

    wait_until(are_there, f"row {number} at both sinks", flow.errors)
    return seen


def rows_of(flow: Flow, table: str, sink: str = "lake") -> list[int]:
    """The ids of a table's rows at the sink, in the order of its files."""
    import pyarrow.parquet as pq

    from penstock.operations.verify.sink_files import data_directories

    found: list[int] = []
    lake = flow.directory / sink
    for directory in data_directories(local_objects(lake)):
        if directory.table == table:
            for name in directory.files:
                found += pq.read_table(lake / name, partitioning=None).column("id").to_pylist()
    return found


def test_a_parked_table_goes_on_once_it_is_resumed(mariadb_server: MariaDbServer, flow: Flow) -> None:
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute("CREATE TABLE orders (id int NOT NULL PRIMARY KEY, v varchar(20)) CHARSET=utf8mb4")
        cursor.execute("CREATE TABLE items (id int NOT NULL PRIMARY KEY)")
        flow.start(once=False)
        flow.wait_for("a capture that follows the server", lambda s: s["source"]["position"] is not None)

        def insert(number: int) -> None:
            cursor.execute("INSERT INTO orders (id, v) VALUES (%s, %s)", (number, f"v{number}"))
            cursor.execute("INSERT INTO items VALUES (%s)", (number,))
            connection.commit()

        insert(1)
        cursor.execute(PARK)
        insert(2)

        # What came before is delivered, the other table goes on, status says what and which command.
        wait_until(lambda: rows_of(flow, "items") == [1, 2], "the other table", flow.errors)
        wait_until(lambda: rows_of(flow, "orders") == [1], "the rows before the statement", flow.errors)
        flow.wait_for("a status that knows it", lambda s: s["parked_count"] == 1)
        code, report = status(flow)
        (parked,) = report["run"]["parked"]
        assert code == 1 and parked["statement"] == PARK and parked["command"] == f"penstock resume {DATABASE}.orders"
        assert report["run"]["source"]["positions"]["restart"] == "pending_snapshot"
        screen = penstock("status", "-c", flow.config).stdout
        assert PARK in screen and parked["command"] in screen and "pending snapshot" in screen
        code, verified = flow.verify()
        assert code == 7 and verified["equal"] and "held back" in verified["sinks"][0]["held_back"][0]

        # What the sink has of the other table comes no later than where nothing is parked.
        took = []
        for number in range(100, 105):
            cursor.execute("INSERT INTO items VALUES (%s)", (number,))
            connection.commit()
            took.append(delays(flow, number))
        parked_delay, free_delay = (statistics.median(one[sink] for one in took) for sink in ("lake", "others"))
        assert parked_delay <= 2 * free_delay + 2, took
        cursor.execute("DELETE FROM items WHERE id >= 100")
        connection.commit()

        # A definition that does not fit is refused; the server's is not understood.
        wrong = flow.directory / "definition.sql"
        wrong.write_text(VERSIONED.replace("row_start timestamp(6)", "row_start datetime(3)"))
        refused = resume(flow, "--schema", wrong)
        assert refused.returncode == 2 and "does not fit" in refused.stderr
        assert "not understood" in resume(flow).stderr

        # The rows of the versioned table are delivered; the next statement parks it again.
        cursor.execute(UNPARK)
        insert(3)
        wait_until(lambda: rows_of(flow, "items")[-1] == 3, "the other table", flow.errors)
        wrong.write_text(VERSIONED)
        resumed = resume(flow, "--schema", wrong)
        assert resumed.returncode == 0, resumed.stderr
        assert json.loads(resumed.stdout)["parked_again"] == UNPARK
        wait_until(lambda: rows_of(flow, "orders") == [1, 2], "what was held back", flow.errors)
        assert "again since it was parked" not in resumed.stderr

        # kill -9 of the whole run; what the table is now is asked of the server, while the flow is stopped.
        flow.kill()
        wait_until(lambda: status(flow)[0] == 5, "the stopped flow", flow.errors)
        (parked,) = status(flow)[1]["parked"]
        assert parked["statement"] == UNPARK
        resumed = resume(flow)
        assert resumed.returncode == 0, resumed.stderr
        assert json.loads(resumed.stdout)["running"] is False
        insert(4)
    flow.start(once=True)
    flow.finish()
    assert rows_of(flow, "orders") == [1, 2, 3, 4]
    code, verified = flow.verify()
    assert code == 0 and verified["sinks"][0]["source_equal"] == 2, verified
    assert not status(flow)[1]["parked"]
