"""Decoding binlog files of a real MariaDB: inserts of 500 rows an event, and of one row a transaction; twelve columns.

Two of ours: the rows as Arrow columns (`binlog/`), and `penstock binlog decode` whole: transactions, rows, JSON lines.
Peers of both: python-mysql-replication, and `mariadb-binlog -v`. Text goes nowhere, ours and theirs.
Rounds alternate; CPU time, the best round counts.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.result import Result
from penstock.binlog.bodies import FormatDescription, parse_format_description
from penstock.binlog.events import split_events
from penstock.binlog.rows import decode_rows, group_rows
from penstock.binlog.table_map import parse_table_map
from penstock.operations.binlog.decode import DecodeOptions, decode_files
from tools.components import REPOSITORY
from tools.components.decoders import find_mariadb_binlog, find_python_with_mysql_replication
from tools.components.mariadb import MariaDbServer

ROUNDS = 5
PEER_ROWS = 20_000  # of python-mysql-replication: its speed does not depend on how many
TOOL = "mariadb-binlog -v"
LIBRARY = "python-mysql-replication 1.0"
TOOL_GOAL, LIBRARY_GOAL = 5.0, 100.0


def measure(server: MariaDbServer, kind: str, path: Path, rows: int, goal: float) -> Iterator[Result]:
    """`goal`: rows/s as columns, on a core."""
    data = path.read_bytes()
    fde = parse_format_description(data[4 : 4 + int.from_bytes(data[13:17], "little")])
    tool = find_mariadb_binlog()
    ways: dict[str, Callable[[int], int]] = {
        "columns": lambda number: columns(data, fde),
        "lines": lambda number: lines(path, rows, count=not number),
        TOOL: lambda number: _run(tool, path, rows),
    }
    best = dict.fromkeys(ways, float("inf"))
    for number in range(ROUNDS + 1):
        for name, way in ways.items():
            began = _cpu_seconds()
            found = way(number)
            if found != rows:
                raise RuntimeError(f"{name} found {found} of {rows} rows")
            if number:  # the first round compiles, and fills the caches
                best[name] = min(best[name], _cpu_seconds() - began)
    speed = {name: rows / seconds for name, seconds in best.items()}
    library = _library(server, path.name, rows)
    yield Result(f"decode rows, {kind}", speed["columns"], "rows/s", goal=goal, goal_kind="least")
    for name, what in (("columns", "decode rows"), ("lines", "binlog decode --format jsonl")):
        yield Result(f"{what}, {kind}", speed[name], "rows/s", LIBRARY, library, goal=LIBRARY_GOAL)
        yield Result(f"{what}, {kind}", speed[name], "rows/s", TOOL, speed[TOOL], goal=TOOL_GOAL)


def columns(data: bytes, fde: FormatDescription) -> int:
    """All rows of a file as Arrow columns. Returns how many."""
    events = split_events(data, start=4)
    count = 0
    for layout, chosen in group_rows(data, events, fde).groups():
        start = int(events.offset[layout])
        table = parse_table_map(data[start : start + int(events.size[layout])], fde)
        count += sum(map(len, decode_rows(data, events, chosen, table, fde)))
    return count


def lines(path: Path, rows: int, *, count: bool) -> int:
    """`penstock binlog decode`, from the file to lines that are written. Returns how many are rows, if it is to count."""
    if count:
        found = io.BytesIO()
        decode_files([path], DecodeOptions(), found.write)
        return found.getvalue().count(b'{"op":"insert"')
    with Path(os.devnull).open("wb", buffering=0) as nowhere:
        decode_files([path], DecodeOptions(), nowhere.write)
    return rows


def _library(server: MariaDbServer, file: str, rows: int) -> float:
    """rows/s of python-mysql-replication: the best of a few runs."""
    python = find_python_with_mysql_replication()
    settings = json.dumps({**server.address(), "file": file, "rows": min(rows, PEER_ROWS)})
    best = 0.0
    for _ in range(3):
        command = [str(python), str(REPOSITORY / "bench" / "binlog" / "mysql_replication_peer.py")]
        done = subprocess.run(command, input=settings, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"python-mysql-replication failed: {done.stderr[-400:]}")
        found = json.loads(done.stdout)
        best = max(best, found["rows"] / found["seconds"])
    return best


def _cpu_seconds() -> float:
    """Of this process, and of the tools that it ran and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _run(tool: Path, path: Path, rows: int) -> int:
    subprocess.run([tool, "-v", "--base64-output=DECODE-ROWS", str(path)], check=True, stdout=subprocess.DEVNULL)
    return rows
