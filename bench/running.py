"""A changefeed that runs: how late a commit is at the sink, what all its processes need, and what they do when idle.

Lag is from the moment when the server has answered a COMMIT to the file at the sink, one commit after another on an
otherwise idle server, with a flush every second. Memory is what all processes of the run had at one time at most while
they caught up with a demo source, pages shared by several counted once.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import yaml

from bench.pipeline import scratch
from bench.processes import Watch, cpu_seconds
from bench.result import Result
from tools.components.mariadb import MariaDbServer

COMMITS = int(os.environ.get("BENCH_LAG_COMMITS", "100"))
IDLE_SECONDS = float(os.environ.get("BENCH_IDLE_SECONDS", "60"))
MEMORY_ROWS = int(os.environ.get("BENCH_MEMORY_ROWS", "2000000"))
_TIMEOUT_SECONDS = 300.0
_SETTLE_SECONDS = 10.0  # after the last commit, until what a commit sets going is over
_LOOK_SECONDS = 0.005
_GIB = 1e9  # the goals are in decimal units


def measure() -> Iterator[Result]:
    with scratch() as directory, MariaDbServer(directory / "server") as server:
        yield from on_an_idle_server(directory, server)
    for sinks, goal in ((1, 1.5), (3, 2.5)):
        with scratch() as directory:
            yield from memory(directory, sinks, goal)


def on_an_idle_server(directory: Path, server: MariaDbServer) -> Iterator[Result]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE bench")
        cursor.execute("CREATE TABLE bench.t (id BIGINT PRIMARY KEY, v VARCHAR(20))")
        source = {
            "type": "mariadb", "host": server.host, "port": server.port, "user": server.user,
            "password": server.password, "start": "now", "tables": {"include": ["bench.*"]},
        }  # fmt: skip
        with running(directory, source, {"out": {"format": "canal-json", "flush": {"every": "1s"}}}) as process:
            files = Files(directory / "out", process)
            cursor.execute("SET autocommit = 1")
            wait_for_capture(directory, process)
            for number in range(5):  # Spark's first jobs are slower than the rest
                cursor.execute(f"INSERT INTO bench.t VALUES ({number}, 'first')")
                files.wait_for_more()
            time.sleep(_SETTLE_SECONDS)
            idle = used(process, IDLE_SECONDS)
            before, began = sum(cpu_seconds(process.pid).values()), time.monotonic()
            lags = []
            pauses = random.Random(1)
            for number in range(COMMITS):
                time.sleep(pauses.uniform(0.0, 2.0))
                cursor.execute(f"INSERT INTO bench.t VALUES ({1000 + number}, 'one')")
                committed = time.monotonic()
                files.wait_for_more()
                lags.append(time.monotonic() - committed)
            busy = sum(cpu_seconds(process.pid).values()) - before
            idle_share = sum(idle.values()) / IDLE_SECONDS
            per_commit = (busy - idle_share * (time.monotonic() - began)) / COMMITS
    yield Result("lag, commit to file, idle server, p50", median(lags), "s", goal=1.5, goal_kind="most")
    p99 = quantiles(lags, n=100)[98] if len(lags) > 1 else lags[0]
    yield Result(f"lag, commit to file, idle server, p99 of {len(lags)}", p99, "s", goal=2.5, goal_kind="most")
    yield Result("idle, processor time of all processes", 100 * idle_share, "% of a core", goal=5, goal_kind="most")
    for kind, seconds in sorted(idle.items()):
        yield Result(f"idle, processor time of {kind}", 100 * seconds / IDLE_SECONDS, "% of a core")
    yield Result("a micro-batch of one row, processor time of all processes", 1000 * per_commit, "ms")


def memory(directory: Path, sinks: int, goal: float) -> Iterator[Result]:
    formats = ("parquet", "canal-json", "csv")[:sinks]
    source = {"type": "demo", "changes": MEMORY_ROWS}
    with running(
        directory, source, {name: {"format": name} for name in formats}, "--once"
    ) as process, Watch(process.pid) as watch:  # fmt: skip
        if (code := process.wait(_TIMEOUT_SECONDS * 3)) != 0:
            raise RuntimeError(f"penstock run ended with {code}: {(directory / 'stderr').read_text()[-2000:]}")
    name = f"memory at its peak, {sinks} sink{'s' * (sinks > 1)}"
    yield Result(f"{name}, all processes", watch.peak_bytes / _GIB, "GB", goal=goal, goal_kind="most")
    for kind, size in sorted(watch.peak_of_kind.items()):
        yield Result(f"{name}, {kind}", size / _GIB, "GB")


class Files:
    """The data files of a sink, as they appear."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes]) -> None:
        self._directory, self._process = directory, process
        self._seen = 0

    def wait_for_more(self) -> None:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while (count := sum(1 for _ in self._directory.glob("bench/t/*/*/CDC*.json"))) <= self._seen:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no file came; penstock run: {self._process.poll()}")
            time.sleep(_LOOK_SECONDS)
        self._seen = count


def used(process: subprocess.Popen[bytes], seconds: float) -> dict[str, float]:
    """Processor seconds of each kind of process during a time in which nothing is asked of them."""
    before = cpu_seconds(process.pid)
    time.sleep(seconds)
    return {kind: value - before.get(kind, 0.0) for kind, value in cpu_seconds(process.pid).items()}


def wait_for_capture(directory: Path, process: subprocess.Popen[bytes]) -> None:
    """`start: now` is when capture has asked the server: rows of an earlier commit would never come."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while b'"position": {' not in (directory / "stdout").read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"capture did not begin; penstock run: {process.poll()}")
        time.sleep(0.1)


@contextlib.contextmanager
def running(
    directory: Path, source: dict[str, Any], sinks: dict[str, dict[str, Any]], *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    config = directory / "penstock.yaml"
    for name, sink in sinks.items():
        sink["url"] = (directory / name).as_uri()
    config.write_text(
        yaml.safe_dump({"version": 1, "state_dir": str(directory / "state"), "source": source, "sinks": sinks})
    )
    with (directory / "stdout").open("wb") as output, (directory / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", "run", "--json", *options, "-c", str(config)],
            stdout=output, stderr=errors,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
