"""Measurements of the log that need a process of their own: a kill -9, memory, thousands of cursors.

python -m bench.log_processes write|open|open-cold|holes|cache DIRECTORY COUNT
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.result import Result
from penstock.files import RealFile, RealFiles
from penstock.log import Cursor, Log, LogReader, LogSettings, Position
from penstock.log.read.cache import CACHE_BYTES_MAX, ReadCache
from penstock.log.read.run import FrameRun
from penstock.metadata import SqliteMetadata

_SETTINGS = LogSettings(maintenance_interval_seconds=0)
_ENTRY_BYTES = 256
_BATCH = 4096
_CURSOR_ENTRIES = 10_000  # every second entry is acked: about 10 KB of state a cursor
_OPENED = 40
_CACHED_BYTES = 1024


def child(what: str, directory: Path, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.log_processes", what, str(directory), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answer(what: str, directory: Path, count: int) -> float:
    with child(what, directory, count) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
    if process.returncode != 0 or not line:
        raise RuntimeError(f"{what} ended with {process.returncode}")
    return float(json.loads(line))


# Reopen after kill -9


def reopen(directory: Path, entries: int, rounds: int) -> Iterator[Result]:
    """CPU time of `Log.open` after the owner was killed. Each round opens a copy, because opening seals the ledger."""
    killed = directory / "killed"
    killed.mkdir()
    with child("write", killed, entries) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    seen = []
    for what in (*["open"] * rounds, "open-cold"):
        shutil.copytree(killed, directory / "copy")
        seen.append(answer(what, directory / "copy", entries))
        shutil.rmtree(directory / "copy")
    shutil.rmtree(killed)
    cold = seen.pop()
    name = f"reopen after kill -9 with {entries:,} entries, CPU"
    yield Result(f"{name}, best of {rounds}", 1000 * min(seen), "ms", goal=100, goal_kind="most")
    yield Result(f"{name}, imports of numba counted", 1000 * cold, "ms")


def write(directory: Path, entries: int) -> None:
    log = Log.open(directory / "log", _SETTINGS)
    fill(log, entries, _ENTRY_BYTES)
    print("1", flush=True)
    time.sleep(600)  # killed here


def fill(log: Log, entries: int, entry_bytes: int) -> None:
    data = os.urandom(entry_bytes)
    for start in range(0, entries, _BATCH):
        log.append_many([data] * min(_BATCH, entries - start)).result()


def reopened_warm(directory: Path, entries: int) -> float:
    """Without the time of imports; numba imports most of itself with the first call of a kernel."""
    import penstock.log.frames.kernels  # noqa: F401
    from penstock.log.frames.check import check_chunk

    check_chunk(bytes(1 << 20), 1, 0)
    return reopened(directory, entries)


def reopened(directory: Path, entries: int) -> float:
    started = time.process_time()
    log = Log.open(directory / "log", _SETTINGS)
    seconds = time.process_time() - started
    found = log.statistics().entries
    log.close()
    if found != entries:
        raise RuntimeError(f"{found} of {entries} entries are there")
    return seconds


# A million holes


def holes(directory: Path, count: int) -> Iterator[Result]:
    grown = answer("holes", directory / "holes", count)
    shutil.rmtree(directory / "holes")
    name = f"memory of a cursor that is {count:,} holes behind: growth of the process"
    yield Result(name, grown / (1 << 20), "MiB", goal=64, goal_kind="most")


def hole_memory(directory: Path, count: int) -> float:
    directory.mkdir()
    settings = LogSettings(maintenance_interval_seconds=0, ledger_entries_max=100_000_000)
    with Log.open(directory / "log", settings) as log:
        fill(log, 2 * count, 1)
        cursor = log.open_cursor("behind")
        ledger = log.end().ledger_id
        cursor.ack(Position(ledger, 1)).result()
        before = resident()
        highest = before
        for start in range(0, count, 10_000):  # every second entry, the first one never
            part = [Position(ledger, 2 * number + 1) for number in range(start, min(start + 10_000, count))]
            cursor.ack_each(part).result()
            highest = max(highest, resident())
        if cursor.hole_count() != count:
            raise RuntimeError(f"{cursor.hole_count()} holes")
    return float(highest - before)


# A full cache


def cache_memory(directory: Path) -> Iterator[Result]:
    """All that the process grows by while its cache is filled and filled again, beside the cache's limit."""
    limit = CACHE_BYTES_MAX
    yield Result(
        "memory of a full cache of 1 KiB entries: growth of the process", answer("cache", directory, limit) / (1 << 20),
        "MiB", "its limit", limit / (1 << 20), goal=1.3, goal_kind="ratio-most",
    )  # fmt: skip


def grown_by_cache(directory: Path, limit: int) -> float:
    """Of runs of one entry, which take the most beside their bytes. The entries of three limits are put."""
    cache = ReadCache(limit)
    reached = 0
    before = resident()
    for number in range(3 * limit // _CACHED_BYTES):
        cache.put("bench", FrameRun(1, number, os.urandom(_CACHED_BYTES), np.zeros((1, 4), np.int64)))
        if number % 1000 == 0:
            reached = max(reached, resident())
    if cache.bytes < 0.9 * limit:
        raise RuntimeError(f"the cache holds {cache.bytes} bytes")
    return float(max(reached, resident()) - before)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


# Thousands of cursors


class _UnsyncedFile(RealFile):
    def datasync(self) -> None:
        """Does nothing. For the set-up, which is not measured: thousands of syncs would take minutes."""


class _UnsyncedFiles(RealFiles):
    def create(self, path: Path) -> RealFile:
        return _UnsyncedFile(path, os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644), 0)

    def open(self, path: Path, *, writable: bool = False) -> RealFile:
        found = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
        return _UnsyncedFile(path, found, os.fstat(found).st_size)

    def sync_directory(self, path: Path) -> None:
        pass


def many_cursors(directory: Path, count: int) -> Iterator[Result]:
    """How long it takes to open one of many cursors: until its record log is read and its state is there."""
    path = directory / "many" / "log"
    path.parent.mkdir()
    with Log.open(path, _SETTINGS) as log:
        fill(log, _CURSOR_ENTRIES, 1)
    make_cursors(path, count)
    os.sync()  # else the first open would also pay for what the set-up left unsynced
    opened: list[float] = []
    made: list[float] = []
    listed: list[float] = []
    with Log.open(path, _SETTINGS) as log:
        for number in range(0, count, max(count // _OPENED, 1)):
            started = time.perf_counter()
            cursor = log.open_cursor(f"c{number:05d}")
            opened.append(time.perf_counter() - started)
            if cursor.hole_count() != _CURSOR_ENTRIES // 2:
                raise RuntimeError("the cursor lost its holes")
        size = cursor.record_bytes
        for number in range(_OPENED):
            started = time.perf_counter()
            log.open_cursor(f"new{number}")
            made.append(time.perf_counter() - started)
        for _ in range(5):
            started = time.perf_counter()
            found = len(log.cursors())
            listed.append(time.perf_counter() - started)
        if found != count + _OPENED:
            raise RuntimeError(f"{found} cursors")
    shutil.rmtree(path.parent)
    name = f"one of {count:,} cursors of {size / 1024:.0f} KiB each"
    yield Result(f"open {name}, p95", _p95(opened), "ms", goal=100, goal_kind="most")
    yield Result(f"open {name}, slowest of {len(opened)}", 1000 * max(opened), "ms")
    yield Result(f"create a cursor beside {count:,}, p95", _p95(made), "ms", goal=100, goal_kind="most")
    yield Result(f"list {count:,} cursors, best of 5", 1000 * min(listed), "ms")


def _p95(seconds: list[float]) -> float:
    """In milliseconds."""
    return 1000 * sorted(seconds)[int(0.95 * (len(seconds) - 1))]


def make_cursors(path: Path, count: int) -> None:
    metadata = SqliteMetadata(path.parent / "metadata.sqlite")
    assert metadata._connection is not None
    metadata._connection.execute("PRAGMA synchronous=OFF")
    files = _UnsyncedFiles()
    reader = LogReader.open(path, metadata=metadata)
    ledger = reader.first.ledger_id
    positions = [Position(ledger, entry) for entry in range(1, _CURSOR_ENTRIES, 2)]
    for number in range(count):
        cursor = Cursor.open(reader, path / "cursors", f"c{number:05d}", files=files)
        cursor.ack_each(positions).result()
        cursor.close()
    reader.close()
    metadata.close()


if __name__ == "__main__":
    what, where, amount = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if what == "write":
        write(where, amount)
    else:
        print(
            json.dumps(
                {"open": reopened_warm, "open-cold": reopened, "holes": hole_memory, "cache": grown_by_cache}[what](
                    where, amount
                )
            ),
            flush=True,
        )
