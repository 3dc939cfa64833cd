"""Capture over the replication protocol, beside the least that a client in Python does: take each packet and look at the
19 bytes of its header. And what a capture costs while nothing happens.

Both read the same binlog from the same server, to its end. CPU time of the process, all its threads; capture writes its log
to memory. Rounds alternate, the best one counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.result import Result
from penstock.capture.loop import Capture, open_log
from penstock.secret import Secret
from penstock.sources.mysql.connection import connect, rows
from penstock.sources.mysql.source import ServerSource
from penstock.sources.settings import ServerSettings, StartAt
from tools.components import REPOSITORY
from tools.components.mariadb import MariaDbServer

ROUNDS = 3
GOAL = 0.6
IDLE_GOAL = 1.0  # per cent of a core
IDLE_SECONDS = 20.0
PEER = "a loop over PyMySQL's packets"
_DUMP, _NON_BLOCK = 0x12, 1


def measure(server: MariaDbServer, directory: Path, files: dict[str, Path]) -> Iterator[Result]:
    """`files`: kind → a binlog file that is closed."""
    for kind, path in files.items():
        size = path.stat().st_size
        ours = theirs = float("inf")
        for number in range(ROUNDS + 1):
            took = _loop(server, path.name, size)
            theirs = min(theirs, took) if number else theirs
            took = _capture(server, directory / f"{kind}-{number}", path.name, size)
            ours = min(ours, took) if number else ours
        yield Result(f"capture, {kind}", size / ours / 1e6, "MB/s of CPU time", PEER, size / theirs / 1e6, goal=GOAL)
    yield Result("capture, idle", _idle(server, directory / "idle"), "% of a core", goal=IDLE_GOAL, goal_kind="most")


def settings_of(server: MariaDbServer, **more: Any) -> ServerSettings:
    address = server.address()
    return ServerSettings(
        type="mariadb", host=address["host"], port=address["port"], user=address["user"],
        password=Secret(address["password"]), **more,
    )  # fmt: skip


def _loop(server: MariaDbServer, file: str, size: int) -> float:
    """CPU seconds of reading the file's events, packet by packet."""
    with closing(connect(settings_of(server))) as connection:
        rows(connection, "SET @master_binlog_checksum = @@global.binlog_checksum")
        rows(connection, "SET @mariadb_slave_capability = 4")
        private: Any = connection
        body = (4).to_bytes(4, "little") + _NON_BLOCK.to_bytes(2, "little") + (7003).to_bytes(4, "little")
        began = time.process_time()
        private._execute_command(_DUMP, body + file.encode())
        seen = events = 0
        while seen < size - 4:
            packet = private._read_packet()
            if packet.is_eof_packet():
                break
            header = packet.read_all()[1:20]
            seen += int.from_bytes(header[9:13], "little") if header[13:17] != bytes(4) else 0
            events += 1
        return time.process_time() - began


def _capture(server: MariaDbServer, directory: Path, file: str, size: int) -> float:
    """CPU seconds of capture from the start of the file to its end, log and state included."""
    directory.mkdir(parents=True, mode=0o700)
    source = ServerSource(settings_of(server, start=StartAt(file=file, pos=4)), directory)
    log = open_log(directory)
    end = source.end()
    target = type(end)(file, size, source=end.source)
    source.end = lambda: target  # type: ignore[method-assign]
    began = time.process_time()
    Capture(log, source).run(until_now=True)
    took = time.process_time() - began
    source.close()
    log.close()
    return took


def _idle(server: MariaDbServer, directory: Path) -> float:
    """Per cent of a core that the capture process takes while nothing is written."""
    directory.mkdir(parents=True, mode=0o700)
    source = {
        "type": "mariadb",
        **{k: server.address()[k] for k in ("host", "port", "user", "password")},
        "server_id": 7005,
    }
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "penstock.capture"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(json.dumps({"state_dir": str(directory), "source": source}) + "\n")
        child.stdin.flush()
        while json.loads(child.stdout.readline())["event"] != "ready":
            pass
        time.sleep(8)  # the first events load the compiled kernels
        before = _process_seconds(child.pid)
        time.sleep(IDLE_SECONDS)
        took = _process_seconds(child.pid) - before
        child.stdin.close()
        child.wait(timeout=30)
    return took / IDLE_SECONDS * 100


def _process_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
