"""A run with small real children: real processes, pipes, sockets, log, cursor and progress; no Spark."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import BadInput, Unavailable
from penstock.supervisor.control_server import control_path
from penstock.supervisor.settings import ChildCommand, RunSettings
from penstock.supervisor.status import RunStatus, RunSummary
from penstock.supervisor.stopping import Stop
from penstock.supervisor.supervisor import run
from penstock.wire import connect, socket_path

ROOT = Path(__file__).parents[2]
COMMANDS = {
    name: ChildCommand((sys.executable, "-m", f"tests.supervisor.tiny_{name}"))
    for name in ("capture", "delivery", "driver")
}


def settings_of(state_dir: Path, *, entries: int = 10, once: bool = False, **tricks: list[str]) -> RunSettings:
    return RunSettings(
        state_dir=state_dir,
        source={"type": "tiny", "entries": entries, "tricks": tricks.get("capture", [])},
        changefeeds={"lake": {"tricks": tricks.get("delivery", []), "every_seconds": 0 if once else 0.2}},
        spark={"tricks": tricks.get("driver", [])},
        once=once,
        progress_every_seconds=0.1,
        backoff_first_seconds=0.05,
        commands=COMMANDS,
    )


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'src'}")


class Running:
    """A run on a thread of its own."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.stop = Stop()
        self.seen: list[RunStatus] = []
        self.summary: RunSummary | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.summary = run(self.settings, on_progress=self.seen.append, stop_event=self.stop)

    def until(self, what: Callable[[RunStatus], bool], seconds: float = 120.0) -> RunStatus:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.seen and what(self.seen[-1]):
                return self.seen[-1]
            time.sleep(0.02)
        raise AssertionError(f"it did not come: {self.seen[-1:]}")

    def end(self, seconds: float = 120.0) -> RunSummary:
        self._thread.join(seconds)
        assert self.summary is not None
        return self.summary

    def pid(self, child: str) -> int:
        return int((self.settings.state_dir / "run" / f"{child}.pid").read_text())


@contextlib.contextmanager
def running(settings: RunSettings) -> Iterator[Running]:
    one = Running(settings)
    try:
        yield one
    finally:
        one.stop.request()
        one.stop.request()
        one.end()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids: list[int], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def delivered(state_dir: Path) -> list[str]:
    """Every entry that the tiny sink got, in order."""
    entries = []
    for line in (state_dir / "sink.txt").read_text().splitlines():
        start, end = (tuple(map(int, text.split(":"))) for text in line.split())
        entries += [f"{start[0]}:{number}" for number in range(start[1], end[1] + 1)]
    return entries


def test_once_catches_up_and_says_how_much(tmp_path: Path) -> None:
    summary = run(settings_of(tmp_path, once=True))
    assert (summary.exit_code, summary.drained) == (0, True)
    assert summary.log_end == "1:9"
    assert summary.mark_delete == {"lake": "1:9"}
    assert (summary.files, summary.rows, summary.bytes) == (4, 4, 40)
    assert delivered(tmp_path) == [f"1:{number}" for number in range(10)]
    again = run(settings_of(tmp_path, once=True))
    assert (again.exit_code, again.rows) == (0, 0), "nothing is new"
    assert "said on standard error" in (tmp_path / "run" / "capture.log").read_text()
    assert "this line is no event" in (tmp_path / "run" / "capture.log").read_text()


def test_once_survives_the_death_of_each_child(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, once=True, capture=["die", "die", ""], delivery=["die", ""], driver=["die", ""])
    summary = run(settings)
    assert summary.exit_code == 0
    assert summary.restarts == {"capture": 2, "delivery": 1, "driver": 1}
    assert delivered(tmp_path) == [f"1:{number}" for number in range(10)]


def test_once_gives_up_on_a_child_that_never_comes_up(tmp_path: Path) -> None:
    summary = run(settings_of(tmp_path, once=True, driver=["die"]))
    assert summary.exit_code == 75
    assert "driver" in summary.message


def test_a_killed_child_comes_back_and_nothing_is_lost(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, entries=30)
    settings = replace(settings, changefeeds={"lake": {}})  # delivery writes only when it is asked to
    with running(settings) as one:
        one.until(lambda s: s.changefeeds[0].published_end == "1:29")
        victim = one.pid("delivery")
        os.kill(victim, signal.SIGKILL)
        one.until(lambda s: any(c.name == "delivery" and c.restarts == 1 and c.state == "running" for c in s.children))
        assert one.pid("delivery") != victim
        # The tiny driver has nothing to publish, so the supervisor must see that its run is lost.
        one.until(lambda s: any(c.name == "driver" and c.restarts == 1 and c.state == "running" for c in s.children))
        one.until(lambda s: s.changefeeds[0].published_end == "1:29" and s.changefeeds[0].state == "running")
        time.sleep(0.5)
        one.stop.request()
        summary = one.end()
    assert (summary.exit_code, summary.drained) == (0, True)
    assert summary.mark_delete == {"lake": "1:29"}
    assert delivered(tmp_path) == [f"1:{number}" for number in range(30)]


@pytest.mark.parametrize(
    ("trick", "code", "message"),
    [("bad-input", 2, "the binlog is gone"), ("exit-3", 3, "capture ended with exit code 3")],
)
def test_an_error_that_does_not_heal_ends_the_run(tmp_path: Path, trick: str, code: int, message: str) -> None:
    summary = run(settings_of(tmp_path, capture=[trick]), stop_event=Stop())
    assert (summary.exit_code, summary.message) == (code, message)
    assert summary.hint
    assert summary.restarts["capture"] == 0


def test_a_stop_goes_in_order_and_leaves_nothing_running(tmp_path: Path) -> None:
    settings = replace(settings_of(tmp_path), changefeeds={"lake": {}})
    with running(settings) as one:
        one.until(lambda s: s.changefeeds[0].published_end == "1:9")
        pids = [one.pid(name) for name in COMMANDS]
        one.stop.request()
        summary = one.end()
    assert gone(pids)
    assert not list((tmp_path / "run").glob("*.pid"))
    assert (summary.exit_code, summary.drained) == (0, True)
    order = (tmp_path / "order.txt").read_text().splitlines()
    assert order == ["capture stopped", "driver stopped", "delivery flushed", "delivery stopped"]
    assert summary.mark_delete == {"lake": "1:9"}


def test_a_child_that_does_not_stop_is_killed_at_the_deadline(tmp_path: Path) -> None:
    settings = replace(settings_of(tmp_path, delivery=["stubborn"]), stop_seconds_max=1.5)
    with running(settings) as one:
        one.until(lambda s: all(c.state == "running" for c in s.children))
        pids = [one.pid(name) for name in COMMANDS]
        one.stop.request()
        began = time.monotonic()
        one.end()
    assert 1.0 < time.monotonic() - began < 60
    assert gone(pids)


def test_a_capture_that_does_not_stop_does_not_cost_the_flush(tmp_path: Path) -> None:
    settings = replace(settings_of(tmp_path, capture=["stubborn"]), changefeeds={"lake": {}}, stop_seconds_max=15.0)
    with running(settings) as one:
        one.until(lambda s: s.changefeeds[0].published_end == "1:9")
        one.stop.request()
        summary = one.end()
    assert (summary.drained, summary.mark_delete) == (True, {"lake": "1:9"})


def test_a_second_request_ends_at_once(tmp_path: Path) -> None:
    settings = replace(settings_of(tmp_path, capture=["stubborn"]), changefeeds={"lake": {}})
    with running(settings) as one:
        one.until(lambda s: s.changefeeds[0].published_end == "1:9")
        pids = [one.pid(name) for name in COMMANDS]
        one.stop.request()
        time.sleep(0.5)
        assert one.summary is None, "capture does not stop, so the run still waits"
        one.stop.request()
        summary = one.end()
    assert gone(pids)
    assert not summary.drained
    assert "nothing is lost" in summary.message
    resumed = run(replace(settings_of(tmp_path, once=True)))
    assert resumed.exit_code == 0
    assert delivered(tmp_path)[:10] == [f"1:{number}" for number in range(10)]


def test_status_tells_what_is_going_on(tmp_path: Path) -> None:
    with running(settings_of(tmp_path)) as one:
        one.until(lambda s: s.changefeeds[0].mark_delete == "1:9")
        one.until(lambda s: s.source.position is not None and all(child.state == "running" for child in s.children))
        with connect(control_path(tmp_path)) as client:
            status = RunStatus.model_validate(client.call("status"))
            with pytest.raises(BadInput, match="no changefeed"):
                client.call("checkpoint", changefeed="nobody")
            assert client.call("checkpoint", changefeed="lake")["mark_delete"] == "1:9"
    feed = status.changefeeds[0]
    assert status.phase == "running"
    assert (status.source.position, status.source.lag_seconds) == ({"file": "binlog.000001", "pos": 4}, 1.5)
    assert (feed.name, feed.state, feed.tables, feed.backlog_entries, feed.lag_seconds) == (
        "lake",
        "running",
        1,
        0,
        0.0,
    )
    assert feed.last_write_ms is not None
    assert (status.log.end, status.log.bytes > 0) == ("1:9", True)
    assert {child.name for child in status.children} == set(COMMANDS)


def test_lag_is_the_age_of_what_is_not_delivered(tmp_path: Path) -> None:
    settings = replace(settings_of(tmp_path), changefeeds={"lake": {}})
    with running(settings) as one:
        one.until(lambda s: s.changefeeds[0].published_end == "1:9")
        first = one.until(lambda s: s.changefeeds[0].lag_seconds > 0).changefeeds[0].lag_seconds
        one.until(lambda s: s.changefeeds[0].lag_seconds > first + 0.2)


def test_two_runs_are_refused(tmp_path: Path) -> None:
    with running(settings_of(tmp_path)) as one:
        one.until(lambda s: s.phase == "running")
        with pytest.raises(Unavailable, match=f"^{re.escape(str(tmp_path))} is in use"):
            run(settings_of(tmp_path), stop_event=Stop())


RUN_ALONE = """
import json, sys
from pathlib import Path
from tests.supervisor.test_supervisor import settings_of
from penstock.supervisor.supervisor import run
tricks = json.loads(sys.argv[2])
summary = run(settings_of(Path(sys.argv[1]), **tricks))
print(summary.exit_code, summary.drained, flush=True)
"""


def start_alone(state_dir: Path, tricks: str = "{}") -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", RUN_ALONE, str(state_dir), tricks], stdout=subprocess.PIPE)
    deadline = time.monotonic() + 120
    names = {"capture.pid", "delivery.pid", "driver.pid"}
    # Until delivery listens, a run that is stopped cannot flush.
    awaited = (state_dir / "made", socket_path(state_dir / "run", "delivery"))
    while {path.name for path in (state_dir / "run").glob("*.pid")} != names or not all(p.exists() for p in awaited):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    return process


def test_children_die_with_a_run_that_is_killed_even_those_that_do_not_listen(tmp_path: Path) -> None:
    stubborn = '{"capture": ["stubborn"], "delivery": ["stubborn"], "driver": ["stubborn"]}'
    process = start_alone(tmp_path, stubborn)
    pids = [int(path.read_text()) for path in (tmp_path / "run").glob("*.pid")]
    assert len(pids) == 3
    assert all(alive(pid) for pid in pids)
    process.kill()
    process.wait(10)
    assert gone(pids, 60)


def test_sigterm_drains(tmp_path: Path) -> None:
    process = start_alone(tmp_path)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert output.split() == [b"0", b"True"]
    assert (tmp_path / "order.txt").read_text().splitlines()[-1] == "delivery stopped"
