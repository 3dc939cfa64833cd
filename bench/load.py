"""The initial load: rows a second from a server's tables into the log, beside a bare fetch of the same tables.

Judged by the median of rounds that alternate, with a server that has the tables in memory. Where they do not fit (MariaDB's
own default is 128 MiB, and it reads past the system's cache), both wait for the server's disk most of the time: that is
shown beside it, without a goal.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.result import Result
from penstock.capture.loop import Capture
from penstock.log import Log
from penstock.sources.mysql.source import ServerSource
from penstock.sources.settings import ServerSettings
from tools.components import MissingComponent
from tools.components.mariadb import MariaDbServer

ROWS = 300_000  # of each table
LARGE_ROWS = 1_000_000  # of one that is read in several ranges of its key
TABLES = 2
ROUNDS = 7
_IN_MEMORY = ("--innodb-buffer-pool-size=1G",)
_FETCH = "a bare fetch over one connection (mariadb --quick)"
_COLUMNS = "id, customer, name, price, born, state, body"


def measure() -> Iterator[Result]:
    client = shutil.which("mariadb") or shutil.which("mysql")
    if client is None:
        raise MissingComponent("the client of MariaDB is not here: apt-get install mariadb-client")
    columns = len(_COLUMNS.split(","))
    small = [f"t{i}" for i in range(TABLES)]
    with _filled_server(_IN_MEMORY) as (server, directory):
        for what, tables, rows in (
            (f"{TABLES} tables of {ROWS:,} rows of {columns} columns", small, ROWS * TABLES),
            (f"one table of {LARGE_ROWS:,} rows of {columns} columns", ["large"], LARGE_ROWS),
        ):
            mine, theirs = _rounds(client, server, directory, tables)
            yield Result(f"initial load, {what}, median", rows / mine, "rows/s", _FETCH, rows / theirs, 1.5)
    with _filled_server(()) as (server, directory):
        mine, theirs = _rounds(client, server, directory, ["large"])
        name = f"initial load, one table of {LARGE_ROWS:,} rows, from the server's disk, median"
        yield Result(name, LARGE_ROWS / mine, "rows/s", _FETCH, LARGE_ROWS / theirs)


@contextlib.contextmanager
def _filled_server(options: Sequence[str]) -> Iterator[tuple[MariaDbServer, Path]]:
    with (
        tempfile.TemporaryDirectory() as scratch,
        MariaDbServer(Path(scratch) / "server", options=options) as server,
    ):
        Path(scratch).chmod(0o755)
        _fill(server)
        _load(server, Path(scratch) / "first", tables=("t0",))  # kernels are compiled
        yield server, Path(scratch)


def _rounds(client: str, server: MariaDbServer, directory: Path, tables: list[str]) -> tuple[float, float]:
    """Median seconds of the load and of its peer."""
    mine, theirs = [], []
    for number in range(ROUNDS):
        theirs.append(_fetch(client, server, tables))
        mine.append(_load(server, directory / f"load-{tables[0]}-{number}", tables=tuple(tables)))
        shutil.rmtree(directory / f"load-{tables[0]}-{number}")
    return statistics.median(mine), statistics.median(theirs)


def _fill(server: MariaDbServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE bench")
        cursor.execute("USE bench")  # where the numbers of the engine SEQUENCE are looked for
        for name, rows in (*((f"t{i}", ROWS) for i in range(TABLES)), ("large", LARGE_ROWS)):
            cursor.execute(
                f"CREATE TABLE bench.{name} (id BIGINT PRIMARY KEY, customer INT, name VARCHAR(60), price DECIMAL(12,2), "
                "born DATETIME(3), state ENUM('new','paid','gone'), body VARCHAR(200))"
            )
            cursor.execute(
                f"INSERT INTO bench.{name} SELECT seq, seq % 9999, CONCAT('name ', seq), seq / 7, NOW(3) - INTERVAL seq MINUTE, "
                f"1 + seq % 3, REPEAT('x', seq % 120) FROM seq_1_to_{rows}"
            )
            cursor.execute(f"ANALYZE TABLE bench.{name}")


def _fetch(client: str, server: MariaDbServer, tables: list[str]) -> float:
    begun = time.perf_counter()
    for name in tables:
        subprocess.run(
            [client, f"--socket={server.socket}", f"--user={server.user}", f"--password={server.password}", "--quick",
             "--batch", "-e", f"SELECT {_COLUMNS} FROM bench.{name}"],
            stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    return time.perf_counter() - begun


def _load(server: MariaDbServer, state_dir: Path, tables: tuple[str, ...]) -> float:
    """Seconds from the first connection until all rows are durable in the log."""
    settings = ServerSettings.model_validate(
        {
            "type": "mariadb",
            "unix_socket": str(server.socket),
            "user": server.user,
            "password": server.password,
            "start": "snapshot",
            "tables": {"include": [f"bench.{name}" for name in tables]},
        }
    )
    state_dir.mkdir()
    source = ServerSource(settings, state_dir)
    log = Log.open(state_dir / "log")
    try:
        capture = Capture(log, source, tables=settings.tables, snapshot=settings.snapshot)
        begun = time.perf_counter()
        capture.run(until_now=True)
        return time.perf_counter() - begun
    finally:
        source.close()
        log.close()
