"""`penstock verify` of three million changes, in each format: seconds, rows a second and the most memory that it had, beside a
plain read of the same files by pyarrow, each in a process of its own.

A flow of the demo makes the sinks first; with BENCH_VERIFY_DIRECTORY those of an earlier time are used, and made there
if there are none.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.pipeline import scratch
from bench.result import Result

CHANGES = int(os.environ.get("BENCH_VERIFY_CHANGES", "3000000"))
SECONDS_MAX = 30.0  # of three million changes
SINKS = {"p": "parquet", "c": "canal-json", "d": "debezium-json"}
PEER = "pyarrow, a plain read of the files"
_PLAIN_READ = """
import json, sys
from pathlib import Path
import pyarrow.json as lines
import pyarrow.parquet as pq
rows = 0
for path in sorted(Path(sys.argv[1]).rglob("CDC*")):
    if path.suffix == ".parquet":
        rows += pq.read_table(path, partitioning=None).num_rows
    elif path.suffix == ".json":
        rows += lines.read_json(path, lines.ReadOptions(block_size=16 << 20)).num_rows
print(json.dumps({"rows": rows}))
"""


@dataclass(slots=True)
class Measured:
    seconds: float
    peak_bytes: int
    answer: dict[str, object]


def measure() -> Iterator[Result]:
    given = os.environ.get("BENCH_VERIFY_DIRECTORY")
    with scratch() if given is None else contextlib.nullcontext(Path(given)) as directory:
        config = _sinks_in(directory)
        for sink, name in SINKS.items():
            arguments = ["-m", "penstock.cli", "verify", "--json", "-c", str(config), "--sink", sink]
            _run(*arguments)  # so that both sides read from the page cache
            run, peer = _run(*arguments), _run("-c", _PLAIN_READ, str(directory / sink))
            rows, read = run.answer["sinks"][0]["changes"], peer.answer["rows"]  # type: ignore[index]
            assert run.answer["equal"] and isinstance(rows, int) and isinstance(read, int) and rows >= CHANGES
            yield Result(f"verify {name}, {rows:,} changes", run.seconds, "s", goal=SECONDS_MAX, goal_kind="most")
            yield Result(f"verify {name}", rows / run.seconds, "changes/s", PEER, read / peer.seconds)
            yield Result(f"verify {name}, most memory", run.peak_bytes / 1e6, "MB", PEER, peer.peak_bytes / 1e6)


def _sinks_in(directory: Path) -> Path:
    """The configuration of a flow that has delivered everything."""
    config = directory / "penstock.yaml"
    if config.exists():
        return config
    sinks = {name: {"url": (directory / name).as_uri(), "format": fmt} for name, fmt in SINKS.items()}
    source = {"type": "demo", "changes": CHANGES}
    value = {"version": 1, "state_dir": str(directory / "state"), "source": source, "sinks": sinks}
    config.write_text(yaml.safe_dump(value))
    command = [sys.executable, "-m", "penstock.cli", "run", "--once", "-c", str(config)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return config


def _run(*arguments: str) -> Measured:
    """A Python program to its end: what it took, and what it said last."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - started
    if process.returncode != 0:
        raise RuntimeError(f"{arguments} ended with {process.returncode}: {said[-2000:]!r}")
    return Measured(seconds, usage.ru_maxrss * 1024, json.loads(said))
