"""The whole way, end to end: rows per second from a source into files, beside the Debezium engine writing JSON lines.

Measured with `penstock run --once` as a user runs it. Two figures each: *with start*, from the command to its end,
including Spark's start and the final flush; and *streaming*, from the moment the driver is ready to the last row at the
sink (capture reads ahead while Spark starts). On MariaDB both sides read the same preloaded binlog of the same server,
one after the other; the peer's streaming figure is from its first record to its last. The driver itself measures the
share of each stage. The start alone is start.py's.
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
from bench.result import Result
from tools.components import CACHE, REPOSITORY, MissingComponent
from tools.components.mariadb import MariaDbServer

DEMO_ROWS = int(os.environ.get("BENCH_DEMO_ROWS", "1000000"))
MARIADB_ROWS = int(os.environ.get("BENCH_MARIADB_ROWS", "500000"))
PEER = "Debezium engine 3.6, JSON"
TASK_STAGES = ("read", "decode", "encode", "stage")
_PEER_PYTHON = CACHE / "bench-venv" / "bin" / "python"
_TIMEOUT_SECONDS = 900.0
# The newest version for which Debezium's MySQL connector asks for nothing that MariaDB 10.11 does not have.
_PEER_SERVER_OPTIONS = ("--version=5.7.19",)


@dataclass(slots=True)
class Measured:
    """What one run of Penstock or of the peer did."""

    rows: int
    seconds: float  # streaming: without the start
    seconds_with_start: float
    stage_seconds: dict[str, float] = field(default_factory=dict)


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
    with MariaDbServer(directory / "server") as server:
        workload.load(server, MARIADB_ROWS)
        source = {
            "type": "mariadb", "host": server.host, "port": server.port, "user": server.user,
            "password": server.password, "start": {"file": "binlog.000001", "pos": 4},
            "tables": {"include": [f"{workload.DATABASE}.*"]},
        }  # fmt: skip
        runs = {name: penstock(directory / name, source, name) for name in ("parquet", "canal-json")}
    with MariaDbServer(directory / "server", options=_PEER_SERVER_OPTIONS) as server:
        peer = debezium(directory / "peer", server)
    for name, run in runs.items():
        yield from results_of(f"MariaDB → {name}", run, peer)


def results_of(name: str, run: Measured, peer: Measured | None = None) -> Iterator[Result]:
    for what, mine, theirs in (
        ("streaming", run.seconds, peer.seconds if peer else None),
        ("with start", run.seconds_with_start, peer.seconds_with_start if peer else None),
    ):
        yield Result(
            f"{name}, {what}",
            run.rows / mine,
            "rows/s",
            PEER if peer else None,
            peer.rows / theirs if peer and theirs else None,
        )
    yield from shares(name, run.stage_seconds)


def shares(name: str, seconds: dict[str, float]) -> Iterator[Result]:
    """Where the tasks' time goes, and what the driver adds to it."""
    task = seconds.get("task", 0.0)
    if not task:
        return
    parts = {stage: seconds.get(stage, 0.0) for stage in TASK_STAGES}
    parts["the rest"] = max(0.0, task - sum(parts.values()))
    for stage, value in parts.items():
        yield Result(f"{name}, {stage}", 100 * value / task, "% of the tasks' time")
    for stage in ("task", "batch", "publish"):
        yield Result(f"{name}, {stage} in all", seconds.get(stage, 0.0), "s")


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
    streaming = (last_write_ms - int(status["started_ms"])) / 1000 - float(summary["driver_ready_seconds"] or 0.0)
    return Measured(int(summary["rows"]), streaming, ended - started, dict(summary["stage_seconds"]))


def debezium(directory: Path, server: MariaDbServer) -> Measured:
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
        "rows": MARIADB_ROWS, "timeout_seconds": _TIMEOUT_SECONDS,
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
