"""A child's log file, and how secrets reach a child."""

from __future__ import annotations

import errno
import io
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import pytest

from penstock.clock import ManualClock
from penstock.errors import Unavailable
from penstock.secret import Secret
from penstock.supervisor import child
from penstock.supervisor.delivery_client import DeliveryClient
from penstock.supervisor.requests import Requests
from penstock.supervisor.restarts import Backoff, ChildSlot
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


_DIES_OF_SOMETHING = """
import json
print(json.dumps({"event": "error", "kind": "Terminal", "message": "the disk is gone", "hint": ""}))
"""


def test_the_last_words_of_a_child_are_in_its_log_however_late_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its standard error ended with it, and the log was closed before the error that it had said came to be written."""
    loads = json.loads

    def slowly(text: Any) -> Any:
        time.sleep(0.3)  # as on a busy machine
        return loads(text)

    monkeypatch.setattr(json, "loads", slowly)
    reports: queue.Queue[child.Report] = queue.Queue()
    child.Child("tiny", (sys.executable, "-c", _DIES_OF_SOMETHING), {}, tmp_path, reports)
    while not isinstance(reports.get(timeout=LIMIT_SECONDS), child.ChildEnded):
        pass
    assert "the disk is gone" in (tmp_path / "tiny.log").read_text()


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


def slot_of(name: str, program: str, run_dir: Path) -> ChildSlot:
    backoff = Backoff(0.2, 10.0, 60.0)
    argv = (sys.executable, "-c", program)
    return ChildSlot(name, argv, {}, run_dir=run_dir, reports=queue.Queue(), backoff=backoff, clock=ManualClock())


@pytest.mark.parametrize("refused", ["_read_events", "_read_log", "_write", "_wait"])
def test_a_child_without_one_of_its_threads_does_not_run(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads count against the same limit as processes, so the last one of a child may be what is refused. That ended the whole
    run, with a traceback."""
    made: list[int] = []
    start, popen = threading.Thread.start, subprocess.Popen

    def limited(thread: threading.Thread) -> None:
        if thread.name == f"delivery-{refused}":
            raise RuntimeError("can't start new thread")
        start(thread)

    def counted(*arguments: Any, **more: Any) -> Any:
        process = popen(*arguments, **more)
        made.append(process.pid)
        return process

    monkeypatch.setattr(threading.Thread, "start", limited)
    monkeypatch.setattr(subprocess, "Popen", counted)
    slot = slot_of("delivery", "import time; time.sleep(600)", tmp_path)
    slot.start()
    assert (slot.state, slot.pid) == ("waiting", None) and "can't start new thread; again in 0.2 s" in slot.note
    with pytest.raises(ProcessLookupError):
        os.kill(made[0], 0)
    assert not (tmp_path / "delivery.pid").exists()


def test_without_a_thread_for_it_a_request_is_not_answered_and_a_flush_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them ended the run; the request was one that was asked already, and never came again."""
    slot = slot_of("driver", "import sys; sys.stdin.read()", tmp_path)
    slot.start()
    slot.on_event({"event": "ready"})

    def none(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    answers: list[Any] = []
    try:
        with monkeypatch.context() as limit:
            limit.setattr(threading.Thread, "start", none)
            Requests(slot).send({"op": "add"}, answers.append)
            flush = DeliveryClient(tmp_path).flush(["lake", "raw"], 1.0)
    finally:
        slot.kill()
    assert [type(one) for one in answers] == [Unavailable]
    assert flush.over and [one.transient for one in flush.errors.values()] == [True, True]
