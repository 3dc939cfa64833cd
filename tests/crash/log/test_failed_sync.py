"""A real process, a real SQLite file, and a sync of its WAL that fails: what a crash may bring back is never lost."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from penstock.log import Log
from tests.support.components import missing
from tools.components import REPOSITORY, MissingComponent
from tools.components.strace import find_strace

_WRITER = """
import os, sys, time
from pathlib import Path
from penstock.errors import OutcomeUnknown
from penstock.log import Log, LogSettings

place = Path(sys.argv[1])
log = Log.open(place / "log", LogSettings(ledger_entries_max=5, maintenance_interval_seconds=0))
for number in range(5):
    log.append(b"%d" % number).result()
    print("acknowledged", number, flush=True)
print("ready", flush=True)
while not (place / "go").exists():
    time.sleep(0.02)
for number in range(5, 10):
    try:
        log.append(b"%d" % number).result()
        print("acknowledged", number, flush=True)
    except OutcomeUnknown:
        print("unknown", number, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_failed_sync_of_the_metadata_during_a_roll_loses_nothing(tmp_path: Path) -> None:
    try:
        strace = find_strace()
    except MissingComponent as error:
        missing(str(error))
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert writer.stdout is not None
    told = []
    for line in writer.stdout:
        if line == "ready\n":
            break
        told.append(line.split())
    syncs = "fsync,fdatasync"
    tracer = subprocess.Popen(
        [strace, "-f", "-p", str(writer.pid), "-o", tmp_path / "trace", "-e", f"trace={syncs}", "-P",
         tmp_path / "metadata.sqlite-wal", "-e", f"inject={syncs}:error=EIO"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert tracer.stderr is not None
    assert "attached" in tracer.stderr.readline()
    time.sleep(0.2)
    (tmp_path / "go").touch()
    told += [line.split() for line in writer.stdout]
    writer.wait(60)
    tracer.wait(60)
    assert "INJECTED" in (tmp_path / "trace").read_text()
    assert ["unknown", "5"] in told, told
    acknowledged = [number.encode() for word, number in told if word == "acknowledged"]
    log = Log.open(tmp_path / "log")
    found = [bytes(entry.data) for entry in log.read(log.reader().first, log.end())]
    log.close()
    assert found[: len(acknowledged)] == acknowledged == [b"%d" % number for number in range(5)]
