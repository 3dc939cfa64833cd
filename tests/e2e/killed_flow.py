"""A server under a load of every kind, with rows from before the start, and a flow that follows it while everything is killed
with -9 in turn: each process of the flow, `penstock run` and the server itself. Then the verdict over what is at its sinks.

    python -m tests.e2e.killed_flow --kills 300 [--seed N] [--first-round N]

That is the soak: rounds of `ROUND_KILLS` kills, each with a server, a flow and sinks of its own, over all combinations of
server and storage in turn. Everything that is chosen follows from the seed and the round's number, so a failure is looked at
again with the seed and the round that were printed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.consumer.consumer import Rebuilt, read_sink, settings_for
from tests.e2e.flow import VICTIMS, Flow
from tests.e2e.servers import workload
from tests.e2e.servers.workload import DATABASE, IMAGES, SKIPPED, Workload
from tests.support.budget import SEED
from tools.components import MissingComponent
from tools.components.database import DatabaseServer
from tools.components.mariadb import MariaDbServer, find_mariadbd
from tools.components.mysql import MySqlServer, find_mysqld
from tools.components.s3 import BUCKET, S3Server, find_weed

SERVERS: dict[str, type[DatabaseServer]] = {"mariadb": MariaDbServer, "mysql": MySqlServer}
PLACES = ("files", "s3")
COMBINATIONS = tuple(itertools.product(SERVERS, PLACES))
# All that may die; those first after which the stream goes on soonest.
EVERYTHING = ("worker", "server", *VICTIMS[1:], "run")
ROUND_KILLS = 12
WORKERS = 8  # with seven tables each, and those that they make meanwhile
TABLES_MIN = 50
PAUSE_SECONDS = 0.3  # of each worker, between its steps
STEPS_FAST = 60  # of each worker, before it slows down
FILLED = 200  # rows of each larger table, before the start
LOAD_ROWS_PER_SECOND = 400  # so that the initial load is killed, too
FORMATS = {"lake": "parquet", "raw": "canal-json"}
_FLUSH = {"size": "1MiB", "every": "1s"}
_NOT_LOADED = {"exclude": [f"{DATABASE}.nopk*"]}  # without a primary key: these begin empty


def victims(count: int, chance: random.Random) -> list[str]:
    """Everything in turn, and then again in another order."""
    found = list(EVERYTHING)
    while len(found) < count:
        found += chance.sample(EVERYTHING, len(EVERYTHING))
    return found[:count]


class KilledFlow:
    """One server and one flow. `url`: where the sinks are, each under its name; None: in the directory."""

    def __init__(self, directory: Path, server: DatabaseServer, url: str | None, seed: int) -> None:
        self.server = server
        workload.create(server, WORKERS)
        self.load = Workload(server, seed, WORKERS, PAUSE_SECONDS, images=("FULL",), steps_fast=STEPS_FAST)
        self.load.fill(FILLED)
        source = {
            "type": server.kind, "host": server.host, "port": server.port, **workload.create_follower(server),
            "tables": {"include": [f"{DATABASE}.*"], "exclude": [f"*.{SKIPPED}*"]},
            "start": "snapshot",
            "snapshot": {"tables": _NOT_LOADED, "max_rows_per_second": LOAD_ROWS_PER_SECOND},
        }  # fmt: skip
        sinks = {
            name: {"format": fmt, "flush": _FLUSH, **({"url": f"{url}/{name}"} if url else {})}
            for name, fmt in FORMATS.items()
        }
        self.flow = Flow(directory, source, sinks)

    def run(self, kills: list[str], first: int = 1) -> None:
        """Kills these, one after another, while the load goes on; then lets everything arrive. `first`: of the first kill, the
        number that is said."""
        flow = self.flow
        flow.start(once=False)
        flow.wait_for("a capture that follows the server", lambda s: s["source"]["position"] is not None)
        with self.load.running():
            for number, victim in enumerate(kills, first):
                flow.kill_next(number, victim, {"server": self._kill_server})
                if _is_loaded(flow.last):
                    self.load.images = IMAGES
            rows = flow.last.get("rows", 0)
            flow.wait_for("progress after the last kill", lambda s: s["rows"] > rows)
        flow.interrupt()
        flow.finish()
        flow.configure(snapshot={"tables": _NOT_LOADED})
        flow.start(once=True)  # what came after the interrupt
        assert flow.finish(consumed=False)["drained"]  # `check` reads them
        assert _is_loaded(flow.last), flow.last

    def check(self) -> int:
        """Every sink has every row once, in its order, by two judges. Returns how many changes there are."""
        names = self._tables()
        assert len(names) >= TABLES_MIN, sorted(names)
        code, report = self.flow.verify()
        assert code == 0, report
        for sink in report["sinks"]:
            assert sink["equal"] and not sink["held_back"] and not sink["loading"], sink
            assert sink["lost"] == sink["doubled"] == sink["wrong"] == sink["misplaced"] == sink["unknown"] == 0
            compared = {table["table"].partition(".")[2]: table for table in sink["tables"]}
            for name in names:
                if name not in compared:  # one that began empty, and nothing has happened to it
                    assert name.startswith("nopk"), (sink["name"], name)
                    continue
                table = compared[name]
                if table["with_source"] is None:  # what no row event brought, and what has no key
                    assert "PARTITION" in table["note"] or "no primary key" in table["note"], table
            self._check_rebuilt(sink["name"], names)
        return int(report["sinks"][0]["changes"])

    def _check_rebuilt(self, sink: str, names: dict[str, list[str]]) -> None:
        """As a consumer without any of our code sees it: the statements run in the order of their versions, no file number
        has a gap, and what is left has the server's columns and keys."""
        rebuilt: Rebuilt = read_sink(self.flow.files_of(sink), settings_for(FORMATS[sink]))
        there = {name[1] for name, table in rebuilt.tables.items() if name[0] == DATABASE}
        names = {name: columns for name, columns in names.items() if name in there or not name.startswith("nopk")}
        assert there >= names.keys(), (sink, sorted(names.keys() - there))
        with contextlib.closing(self.server.connect(DATABASE)) as connection, connection.cursor() as cursor:
            gone = {name for name in there - names.keys() if rebuilt.tables[DATABASE, name].rows}
            assert not gone, (sink, "rows of tables that the server does not have", gone)
            for name, columns in names.items():
                table = rebuilt.tables[DATABASE, name]
                assert table.schema.names == columns, (sink, name)
                if table.schema.key:
                    cursor.execute(f"SELECT {', '.join(f'`{key}`' for key in table.schema.key)} FROM `{name}`")
                    at_server = {tuple(map(str, row)) for row in cursor.fetchall()}
                    at_sink = {tuple(map(str, key)) for key in table.rows}
                    missing, surplus = sorted(at_server - at_sink)[:5], sorted(at_sink - at_server)[:5]
                    assert at_sink == at_server, (sink, name, "missing", missing, "too many", surplus)

    def _tables(self) -> dict[str, list[str]]:
        """The server's tables that are followed, with their columns."""
        found: dict[str, list[str]] = {}
        with contextlib.closing(self.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s "
                "ORDER BY table_name, ordinal_position",
                (DATABASE,),
            )
            for table, column in cursor.fetchall():
                if not table.startswith(SKIPPED):
                    found.setdefault(table, []).append(column)
        return found

    def _kill_server(self) -> None:
        with self.load.fragile:
            self.server.kill()
            self.server.start()


def _is_loaded(snapshot: dict[str, Any]) -> bool:
    load = snapshot.get("source", {}).get("load")
    return load is not None and load["done"] == load["tables"] > 0


@contextlib.contextmanager
def new_place(place: str, directory: Path) -> Iterator[str | None]:
    """The URL of a new place for sinks, and what clients of it read in the environment."""
    if place == "files":
        yield None
        return
    server = S3Server(directory / "s3").start()
    try:
        os.environ.update(server.environment())
        yield f"s3://{BUCKET}/{directory.name}"
    finally:
        server.stop()


def _soak(kills: int, seed: int, first_round: int) -> None:
    rounds = -(-kills // ROUND_KILLS)
    begun = time.monotonic()
    for number in range(first_round, rounds + 1):
        kind, place = COMBINATIONS[(number - 1) % len(COMBINATIONS)]
        done = (number - 1) * ROUND_KILLS
        print(f"round {number} of {rounds} · {kind} → {place} · seed {seed} · {done} of {kills} kills", flush=True)
        chance = random.Random(seed * 1000 + number)
        with contextlib.ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-kills-")))
            directory.chmod(0o755)  # the server runs as a user of its own
            server = stack.enter_context(SERVERS[kind](directory / "server"))
            url = stack.enter_context(new_place(place, directory))
            world = KilledFlow(directory / "flow", server, url, chance.randrange(1 << 32))
            stack.callback(world.flow.kill)
            world.run(victims(ROUND_KILLS, chance)[: kills - done], done + 1)
            changes = world.check()
        print(f"✓ round {number}: {changes:,} changes equal · {(time.monotonic() - begun) / 60:.1f} min", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--first-round", type=int, default=1)
    given = parser.parse_args()
    try:
        for find in (find_mariadbd, find_mysqld, find_weed):
            find()
    except MissingComponent as error:  # now, not after some hours
        print(f"✗ {error}", file=sys.stderr)
        return 1
    _soak(given.kills, given.seed, given.first_round)
    return 0


if __name__ == "__main__":
    sys.exit(main())
