"""A child's log file, and how secrets reach a child."""

from __future__ import annotations

import errno
import io
import os
import queue
import sys
from pathlib import Path
from typing import IO

import pytest

from penstock.secret import Secret
from penstock.supervisor import child
from tests.support.waiting import LIMIT_SECONDS


def test_the_log_of_a_child_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert child.LOG_BYTES_MAX > 1 << 20
    monkeypatch.setattr(child, "LOG_BYTES_MAX", 1000)
    log = child._LimitedLog(tmp_path / "capture.log")
    for number in range(100):
        log.write(b"line %05d of the log\n" % number)
    log.close()
    assert (tmp_path / "capture.log").stat().st_size <= 1000
    assert (tmp_path / "capture.log.1").stat().st_size <= 1000
    assert (tmp_path / "capture.log").read_bytes().endswith(b"line 00099 of the log\n")


def test_what_a_terminal_would_obey_is_escaped_in_the_log(tmp_path: Path) -> None:
    """A traceback quotes names that others chose, and people look at log files with `cat` and `tail`."""
    log = child._LimitedLog(tmp_path / "capture.log")
    log.write("\tno table \x1b]0;mine\x07 or \u202eb\x9b2J, zwölf\n".encode())
    log.write(b"bytes \x9b2J\n")
    log.close()
    written = (tmp_path / "capture.log").read_text()
    assert written == "\tno table \\x1b]0;mine\\x07 or \\u202eb\\x9b2J, zwölf\nbytes \\udc9b2J\n"


_SHOWS_EVERYTHING = """
import json, os, sys
settings = json.loads(sys.stdin.readline())
print(json.dumps({"event": "saw", "given": settings["password"] == "in a pipe 4711", "environment": "MY_SECRET" in os.environ}))
sys.stderr.write(f"a library prints {settings['password']}\\n")
"""


def test_a_secret_reaches_a_child_on_its_standard_input_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "in a pipe 4711")
    reports: queue.Queue[child.Report] = queue.Queue()
    settings = {"password": Secret("in a pipe 4711")}
    child.Child("tiny", (sys.executable, "-c", _SHOWS_EVERYTHING), settings, tmp_path, reports)
    said = reports.get(timeout=LIMIT_SECONDS)
    assert isinstance(said, child.ChildSaid)
    assert said.event == {"event": "saw", "given": True, "environment": False}
    assert isinstance(reports.get(timeout=LIMIT_SECONDS), child.ChildEnded)
    assert "a library prints ***" in (tmp_path / "tiny.log").read_text()
    assert "4711" not in (tmp_path / "tiny.log").read_text()


_SAYS_EVENTS = """
import json
for event in ("progress", "metrics", "restart"):
    print(json.dumps({"event": event, "text": "figures of " + event}))
"""


def test_what_a_child_says_all_the_time_pushes_nothing_out_of_its_log(tmp_path: Path) -> None:
    """Metrics, every ten seconds and some 30 kB each, left an error in the log for less than an hour."""
    reports: queue.Queue[child.Report] = queue.Queue()
    child.Child("tiny", (sys.executable, "-c", _SAYS_EVENTS), {}, tmp_path, reports)
    said = []
    while isinstance(report := reports.get(timeout=LIMIT_SECONDS), child.ChildSaid):
        said.append(report.event["event"])
    assert said == ["progress", "metrics", "restart"]
    assert (tmp_path / "tiny.log").read_text().count("figures of") == 1
    assert "figures of restart" in (tmp_path / "tiny.log").read_text()


_SAYS_MORE_THAN_A_PIPE_HOLDS = """
import json, sys
print(json.dumps({"event": "ready"}), flush=True)
for number in range(3000):
    sys.stderr.write(f"line {number:05d} of the log " + "x" * 80 + "\\n")
sys.stderr.flush()
print(json.dumps({"event": "progress"}), flush=True)
"""


class FullDisk:
    """Files of children's logs, on a disk that takes nothing while `full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        self._open = child.open_private
        monkeypatch.setattr(child, "open_private", self.open_private)

    def open_private(self, path: Path, mode: str) -> IO[bytes]:
        self._open(path, mode).close()  # a name is there, as on most full disks
        return io.BufferedWriter(_Raw(path, self))


class _Raw(io.FileIO):
    def __init__(self, path: Path, disk: FullDisk) -> None:
        super().__init__(path, "a")
        self._disk = disk

    def write(self, data: object) -> int:
        if self._disk.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)  # type: ignore[arg-type]


def test_a_full_disk_under_its_log_neither_stops_nor_silences_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads that read ended with the first line that was refused: nothing of the child was heard any more, and it stood
    still once a pipe was full, also after there was room again."""
    FullDisk(monkeypatch)
    reports: queue.Queue[child.Report] = queue.Queue()
    one = child.Child("tiny", (sys.executable, "-c", _SAYS_MORE_THAN_A_PIPE_HOLDS), {}, tmp_path, reports)
    try:
        said = [reports.get(timeout=LIMIT_SECONDS) for _ in range(3)]
    finally:
        one.kill()
    assert [each.event["event"] for each in said if isinstance(each, child.ChildSaid)] == ["ready", "progress"]
    assert isinstance(said[-1], child.ChildEnded) and said[-1].code == 0


def test_a_log_tells_how_many_lines_a_full_disk_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(monkeypatch)
    disk.full = False
    log = child._LimitedLog(tmp_path / "capture.log")
    log.write(b"before\n")
    disk.full = True
    for _ in range(7):
        log.write(b"refused\n")
    disk.full = False
    log.write(b"after\n")
    log.close()
    lines = (tmp_path / "capture.log").read_text().splitlines()
    assert lines == ["before", "(7 lines are missing here: the disk took none)", "after"]
