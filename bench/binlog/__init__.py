"""Binlogs of a real MariaDB: decoding files (decoding.py), and following the server (capturing.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bench import workload
from bench.binlog import capturing, decoding
from bench.pipeline import scratch
from bench.result import Result
from tools.components.mariadb import MariaDbServer

SCALE = float(os.environ.get("BENCH_BINLOG_SCALE", "1"))
BULK_ROWS = max(int(400_000 * SCALE), 2_000)
SINGLE_ROWS = max(int(40_000 * SCALE), 2_000)
BULK_GOAL, SINGLE_GOAL = 2e6, 1e6  # rows/s, a core


def measure() -> Iterator[Result]:
    with scratch() as directory:
        # Nothing here is about durability: without syncs the rows are written in seconds.
        options = ("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--binlog-annotate-row-events=OFF")
        server = MariaDbServer(directory / "server", options=options).start()
        try:
            workload.load(server, BULK_ROWS)
            bulk = _rotated(server)
            workload.load_singly(server, SINGLE_ROWS)
            single = _rotated(server)
            yield from decoding.measure(server, "bulk", bulk, BULK_ROWS, BULK_GOAL)
            yield from decoding.measure(server, "single-row", single, SINGLE_ROWS, SINGLE_GOAL)
            yield from capturing.measure(server, directory / "capture", {"bulk": bulk, "single-row": single})
        finally:
            server.stop()


def _rotated(server: MariaDbServer) -> Path:
    """The binlog file so far, closed: the next rows go to another."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        name = str(cursor.fetchone()[0])
        cursor.execute("FLUSH BINARY LOGS")
    return server.binlog_directory / name
