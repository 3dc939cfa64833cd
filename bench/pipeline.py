"""The whole way, end to end: rows per second from a source into files, beside the Debezium engine writing JSON lines.

Measured with `penstock run --once` as a user runs it. Two figures each: *with start*, from the command to its end,
including Spark's start and the final flush; and *streaming*, from the moment the driver is ready to the last row at the
sink (capture reads ahead while Spark starts). On MariaDB both sides read the same preloaded binlog of the same server,
one after the other; the peer's streaming figure is from its first record to its last. The tasks themselves measure the
share of each stage, and the processor time of each process is beside it: with two cores, wall time is what all of them
need together, unless one waits for another. The start alone is start.py's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench import start, workload
from bench.processes import Watch
from bench.result import Result
from penstock.spark.runs import WAITED_FOR_LOG, WAITED_FOR_SINK, WAITED_FOR_TASKS
from tools.components import CACHE, REPOSITORY, MissingComponent
from tools.components.mariadb import MariaDbServer

DEMO_ROWS = int(os.environ.get("BENCH_DEMO_ROWS", "5000000"))
MARIADB_ROWS = int(os.environ.get("BENCH_MARIADB_ROWS", "3000000"))
SINGLE_ROWS = int(os.environ.get("BENCH_SINGLE_ROWS", "1000000"))  # each in a transaction of its own
PEER = "Debezium engine 3.6, JSON"
TASK_STAGES = ("read", "decode", "encode", "stage")
_PEER_PYTHON = CACHE / "bench-venv" / "bin" / "python"
_TIMEOUT_SECONDS = 900.0
_GOAL_WITH_START = 3.0
# The newest version for which Debezium's MySQL connector asks for nothing that MariaDB 10.11 does not have.
_PEER_SERVER_OPTIONS = ("--version=5.7.19",)


@dataclass(slots=True)
class Measured:
    """What one run of Penstock or of the peer did."""

    rows: int
    seconds: float  # streaming: without the start
    seconds_with_start: float
    stage_seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    ready_seconds: float = 0.0  # from the command until the driver could begin


def measure() -> Iterator[Result]:
    with scratch() as directory:
        yield from start.measure(directory)
    with scratch() as directory:
        for format_name in ("parquet", "canal-json"):
            source = {"type": "demo", "changes": DEMO_ROWS}
            run = penstock(directory / f"demo-{format_name}", source, format_name)
            yield from results_of(f"demo → {format_name}", run)
    with scratch() as directory:
        yield from on_mariadb(directory)


def on_mariadb(directory: Path) -> Iterator[Result]:
    for name, rows, load, formats, goal in (
        ("MariaDB", MARIADB_ROWS, workload.load, ("parquet", "canal-json"), 6.0),
        ("MariaDB, single-row transactions", SINGLE_ROWS, workload.load_singly, ("canal-json",), 5.0),
    ):
        place = directory / f"{rows}-{goal:g}"
        with MariaDbServer(place / "server") as server:
            load(server, rows)
            source = {
                "type": "mariadb", "host": server.host, "port": server.port, "user": server.user,
                "password": server.password, "start": {"file": "binlog.000001", "pos": 4},
                "tables": {"include": [f"{workload.DATABASE}.*"]},
            }  # fmt: skip
            runs = {format_name: penstock(place / format_name, source, format_name) for format_name in formats}
        with MariaDbServer(place / "server", options=_PEER_SERVER_OPTIONS) as server:
            peer = debezium(place / "peer", server, rows)
        for format_name, run in runs.items():
            yield from results_of(f"{name} → {format_name}", run, peer, goal)
        shutil.rmtree(place)


def results_of(name: str, run: Measured, peer: Measured | None = None, goal: float | None = None) -> Iterator[Result]:
    for what, mine, theirs, wanted in (
        ("streaming", run.seconds, peer.seconds if peer else None, goal),
        ("with start", run.seconds_with_start, peer.seconds_with_start if peer else None, goal and _GOAL_WITH_START),
    ):
        yield Result(
            f"{name}, {what}",
            run.rows / mine,
            "rows/s",
            PEER if peer else None,
            peer.rows / theirs if peer and theirs else None,
            wanted,
        )
    yield from shares(name, run)
    for kind, seconds in sorted(run.cpu_seconds.items()):
        yield Result(f"{name}, processor time of {kind}", seconds, "s")


def shares(name: str, run: Measured) -> Iterator[Result]:
    """Where the work goes, and what the clock waits for. The stages are sums over all tasks and threads, capture is its
    process's time on a processor; with two cores their sum passes up to twice as fast as the clock."""
    seconds = run.stage_seconds
    task = seconds.get("task", 0.0)
    if not task:
        return
    parts = {"capture": run.cpu_seconds.get("capture", 0.0)}
    parts |= {stage: seconds.get(stage, 0.0) for stage in TASK_STAGES}
    parts["the rest of the tasks"] = max(0.0, task - sum(seconds.get(stage, 0.0) for stage in TASK_STAGES))
    parts |= {"spool": seconds.get("publish", 0.0), "write": seconds.get("write", 0.0)}
    whole = sum(parts.values())
    for stage, value in parts.items():
        yield Result(f"{name}, {stage}", 100 * value / whole, "% of all stages' time")
    for stage in ("task", "batch"):
        yield Result(f"{name}, {stage} in all", seconds.get(stage, 0.0), "s")
    driver = {"tasks": WAITED_FOR_TASKS, "capture": WAITED_FOR_LOG, "the sink": WAITED_FOR_SINK}
    waited = {what: seconds.get(key, 0.0) for what, key in driver.items()} | {"the spool": seconds.get("publish", 0.0)}
    waited = {"Spark's start": run.ready_seconds, **waited}
    waited["the end"] = max(0.0, run.seconds_with_start - sum(waited.values()))
    for what, value in waited.items():
        yield Result(f"{name}, the clock waits for {what}", value, "s")


def penstock(directory: Path, source: dict[str, Any], format_name: str) -> Measured:
    """Runs the pipeline into `directory` until it has caught up."""
    directory.mkdir(parents=True)
    config = directory / "penstock.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "version": 1,
                "state_dir": str(directory / "state"),
                "source": source,
                "sinks": {"out": {"url": (directory / "out").as_uri(), "format": format_name}},
            }
        )
    )
    started = time.monotonic()
    summary: dict[str, Any] = {}
    status: dict[str, Any] = {}
    with (directory / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", "run", "--once", "--json", "-c", str(config)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    with Watch(process.pid, every_seconds=1.0, memory=False) as watch:
        for line in process.stdout:
            event = json.loads(line)
            if event.get("event") == "summary":
                summary = event
            elif event.get("event") == "progress":
                status = event
        code = process.wait(_TIMEOUT_SECONDS)
    ended = time.monotonic()
    if code != 0 or not summary.get("drained"):
        raise RuntimeError(f"penstock run ended with {code}: {summary}; {(directory / 'stderr').read_text()[-2000:]}")
    # Streaming ends with the last write, which the run's last status has: Spark's shutdown comes after it.
    last_write_ms = max(int(feed["last_write_ms"] or 0) for feed in status["changefeeds"])
    ready = float(summary["driver_ready_seconds"] or 0.0)
    streaming = (last_write_ms - int(status["started_ms"])) / 1000 - ready
    before = time.time() - time.monotonic() + started  # the command, on the clock of `started_ms`
    return Measured(
        int(summary["rows"]),
        streaming,
        ended - started,
        dict(summary["stage_seconds"]),
        watch.cpu_of_kind,
        int(status["started_ms"]) / 1000 - before + ready,
    )


def debezium(directory: Path, server: MariaDbServer, rows: int) -> Measured:
    """The peer, over the same binlog from its start."""
    if not shutil.which("java") and not os.environ.get("JAVA_HOME"):
        raise MissingComponent(
            "the Debezium engine needs Java 17 or newer (Debian: apt-get install default-jre-headless)"
        )
    if not _PEER_PYTHON.exists():
        raise MissingComponent("the peers are not installed: start the benchmark with `make bench`")
    directory.mkdir(parents=True)
    settings = {
        **server.address(), "directory": str(directory), "table": f"{workload.DATABASE}.{workload.TABLE}",
        "rows": rows, "timeout_seconds": _TIMEOUT_SECONDS,
    }  # fmt: skip
    done = subprocess.run(
        [str(_PEER_PYTHON), str(REPOSITORY / "bench" / "debezium_peer.py")],
        input=json.dumps(settings), text=True, capture_output=True, cwd=directory, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"the Debezium engine failed: {done.stderr[-1000:]}{done.stdout[-2000:]}")
    result = json.loads((directory / "result.json").read_text())
    return Measured(result["rows"], result["seconds"], result["seconds_with_start"])


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    directory.chmod(0o755)  # MariaDB runs as another user where we are root
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
