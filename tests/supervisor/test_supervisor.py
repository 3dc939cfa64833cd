"""A run with small real children: real processes, pipes, sockets, log, cursor and progress; no Spark."""

from __future__ import annotations

import contextlib
import errno
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
from typing import Any

import pytest

from penstock.changefeed.keeper import Keeper
from penstock.clock import SystemClock
from penstock.errors import BadInput, OutcomeUnknown, Unavailable
from penstock.files.private import write_private
from penstock.process import EXIT_LEFT, EXIT_TRY_AGAIN
from penstock.state import Change
from penstock.supervisor import child, restarts
from penstock.supervisor.child import Child
from penstock.supervisor.control_server import control_path
from penstock.supervisor.settings import ChildCommand, RunSettings
from penstock.supervisor.status import RunStatus, RunSummary
from penstock.supervisor.stopping import Stop
from penstock.supervisor.supervisor import run
from penstock.wire import connect, socket_path
from tests.support.waiting import LIMIT_SECONDS, wait_until

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
        stop_seconds_max=LIMIT_SECONDS,
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

    def until(self, what: Callable[[RunStatus], bool]) -> RunStatus:
        """The first status for which it holds."""
        met: list[RunStatus] = []

        def look() -> bool:
            met.extend(status for status in self.seen[-1:] if what(status))
            return bool(met)

        wait_until(look, "such status", lambda: self.seen[-1:])
        return met[0]

    def end(self) -> RunSummary:
        self._thread.join(LIMIT_SECONDS)
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


def wait_until_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(alive(pid) for pid in pids), "end of the children")


def delivered(state_dir: Path) -> list[str]:
    """Every entry that the tiny sink got, in order."""
    entries = []
    for line in (state_dir / "sink.txt").read_text().splitlines():
        start, end = (tuple(map(int, text.split(":"))) for text in line.split())
        entries += [f"{start[0]}:{number}" for number in range(start[1], end[1] + 1)]
    return entries


def published_by(state_dir: Path, delivery: int) -> str:
    """The end of what this process of the tiny delivery was given; empty where it got nothing."""
    notes = state_dir / "published.txt"
    lines = (line.split() for line in (notes.read_text().splitlines() if notes.exists() else ()))
    return next((end for pid, end in reversed(list(lines)) if int(pid) == delivery), "")


def test_once_catches_up_and_says_how_much(tmp_path: Path) -> None:
    summary = run(settings_of(tmp_path, once=True))
    assert (summary.exit_code, summary.drained) == (0, True)
    assert summary.log_end == "1:9"
    assert summary.mark_delete == {"lake": "1:9"}
    assert (summary.files, summary.rows, summary.bytes) == (4, 4, 40)
    assert summary.stage_seconds["write"] == 0.5, "as delivery said with its last word"
    assert delivered(tmp_path) == [f"1:{number}" for number in range(10)]
    again = run(settings_of(tmp_path, once=True))
    assert (again.exit_code, again.rows) == (0, 0), "nothing is new"
    assert "said on standard error" in (tmp_path / "run" / "capture.log").read_text()
    assert "this line is no event" in (tmp_path / "run" / "capture.log").read_text()


def test_once_that_was_stopped_before_it_had_caught_up_is_no_success(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    summary = run(
        settings_of(tmp_path, once=True, capture=["die"] * 5), stop_event=stop
    )  # it cannot catch up meanwhile
    assert summary.exit_code == 130
    assert "before it had caught up" in summary.message
    assert run(settings_of(tmp_path), stop_event=stop).exit_code == 0, "without `once` this is the usual end"


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


def test_once_gives_up_on_a_child_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(name: str, *arguments: Any) -> Child:
        if name == "driver":
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return Child(name, *arguments)

    monkeypatch.setattr(restarts, "Child", start)
    summary = run(settings_of(tmp_path, once=True))
    assert summary.exit_code == EXIT_TRY_AGAIN
    assert summary.message.startswith(f"driver cannot be started: {os.strerror(errno.ENOMEM)}, 5 times in a row")


def test_a_full_disk_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that died then could not be started again for its file with the process id, and the run ended."""
    full: list[bool] = []

    def write(path: Path, text: str) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_private(path, text)

    monkeypatch.setattr(child, "write_private", write)
    with running(settings_of(tmp_path)) as one:
        one.until(lambda status: status.rows >= 4)
        full.append(True)
        os.kill(one.pid("delivery"), signal.SIGKILL)
        one.until(lambda status: status.restarts == 1 and status.changefeeds[0].state == "running")


class _Lost:
    """A frame that the disk did not take."""

    def result(self, timeout: float | None = None) -> None:
        raise OutcomeUnknown("nobody knows whether the last records are on the disk", hint="repair the disk")


def test_a_keeper_whose_disk_fails_ends_the_run_and_nothing_of_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the run raised what the keeper's close did: nobody learned the exit code, or what was left; and the keeper's
    files stayed in use."""

    real = Keeper._commit

    def commit(keeper: Keeper, change: Change) -> Any:
        if keeper._run is None:  # while it is opened
            return real(keeper, change)
        keeper._newest = _Lost()
        return keeper._newest

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "_commit", commit)
        summary = run(settings_of(tmp_path))
    assert (summary.exit_code, summary.hint) == (EXIT_TRY_AGAIN, "repair the disk")
    assert summary.message.startswith("nobody knows") and not summary.drained and summary.left_bytes["lake"] > 0
    summary = run(settings_of(tmp_path, once=True))
    assert (summary.exit_code, summary.drained) == (0, True)
    assert delivered(tmp_path) == [f"1:{number}" for number in range(10)]


def test_a_killed_child_comes_back_and_nothing_is_lost(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, entries=30)
    settings = replace(settings, changefeeds={"lake": {}})  # delivery writes only when it is asked to
    with running(settings) as one:
        one.until(lambda s: s.changefeeds[0].published_end == "1:29")
        victim = one.pid("delivery")
        os.kill(victim, signal.SIGKILL)
        one.until(lambda s: any(c.name == "delivery" and c.restarts == 1 and c.state == "running" for c in s.children))
        assert one.pid("delivery") != victim
        wait_until(lambda: published_by(tmp_path, one.pid("delivery")) == "1:29", "entries at the new delivery")
        one.stop.request()
        summary = one.end()
    assert (summary.exit_code, summary.drained) == (0, True)
    assert summary.restarts["driver"] == 0, "it begins a new run by itself: Spark's JVM goes on"
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
    wait_until_gone(pids)
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
    assert time.monotonic() - began > 1.0
    assert "delivery stopped" not in (tmp_path / "order.txt").read_text()
    wait_until_gone(pids)


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
        one.until(lambda s: s.phase == "draining")  # which lasts: capture does not stop
        one.stop.request()
        summary = one.end()
    wait_until_gone(pids)
    assert not summary.drained
    assert summary.exit_code == EXIT_LEFT
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
import json, signal, sys
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup, and a run respects that
from tests.supervisor.test_supervisor import settings_of
from penstock.supervisor.supervisor import run
tricks = json.loads(sys.argv[2])
summary = run(settings_of(Path(sys.argv[1]), **tricks))
print(summary.exit_code, summary.drained, flush=True)
"""


def start_alone(state_dir: Path, tricks: str = "{}") -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", RUN_ALONE, str(state_dir), tricks], stdout=subprocess.PIPE)
    names = {"capture.pid", "delivery.pid", "driver.pid"}
    # Until delivery listens, a run that is stopped cannot flush.
    awaited = (state_dir / "made", socket_path(state_dir / "run", "delivery"))

    def is_up() -> bool:
        assert process.poll() is None
        pids = {path.name for path in (state_dir / "run").glob("*.pid")}
        return pids == names and all(path.exists() for path in awaited)

    wait_until(is_up, "run with all its children")
    return process


def test_children_die_with_a_run_that_is_killed_even_those_that_do_not_listen(tmp_path: Path) -> None:
    stubborn = '{"capture": ["stubborn"], "delivery": ["stubborn"], "driver": ["stubborn"]}'
    process = start_alone(tmp_path, stubborn)
    pids = [int(path.read_text()) for path in (tmp_path / "run").glob("*.pid")]
    assert len(pids) == 3
    assert all(alive(pid) for pid in pids)
    process.kill()
    process.wait()
    wait_until_gone(pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_a_closed_terminal_drain(number: signal.Signals, tmp_path: Path) -> None:
    """SIGHUP ended the run at once: not drained, and the key of the masks stayed in `run/`."""
    process = start_alone(tmp_path)
    delivery = int((tmp_path / "run" / "delivery.pid").read_text())
    wait_until(lambda: published_by(tmp_path, delivery) == "1:9", "all of the log published")
    process.send_signal(number)
    output, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert output.split() == [b"0", b"True"]
    assert (tmp_path / "order.txt").read_text().splitlines()[-1] == "delivery stopped"


def test_a_stop_tells_what_is_left_in_the_log(tmp_path: Path) -> None:
    """Captured and never published, because the driver does not work: that is not drained."""
    with running(settings_of(tmp_path, entries=10, driver=["die"] * 100)) as one:
        one.until(lambda status: any(feed.backlog_entries >= 10 for feed in status.changefeeds))
        one.stop.request()
        summary = one.end()
    assert not summary.drained and summary.rows == 0
    assert summary.left_bytes["lake"] > 0
    assert summary.exit_code == EXIT_LEFT, "it was asked to stop, and could not bring everything to the sink"
    with running(settings_of(tmp_path, entries=10)) as one:
        one.until(lambda status: any(feed.backlog_entries == 0 for feed in status.changefeeds))
        one.stop.request()
        summary = one.end()
    assert summary.drained and summary.left_bytes == {"lake": 0}


def test_a_stop_waits_for_what_is_in_the_log_and_was_not_published_yet(tmp_path: Path) -> None:
    """Right after the start: capture was quicker than the driver. Nothing of that is left behind."""
    with running(settings_of(tmp_path, entries=10, driver=["slow"])) as one:
        one.until(lambda status: any(feed.backlog_entries >= 10 for feed in status.changefeeds))
        assert one.seen[-1].changefeeds[0].published_end != "1:9", "the driver waits until the stop has begun"
        one.stop.request()
        one.until(lambda status: status.phase == "draining")
        (tmp_path / "go").touch()
        summary = one.end()
    assert (summary.exit_code, summary.drained, summary.left_bytes) == (0, True, {"lake": 0})
    assert delivered(tmp_path) == [f"1:{number}" for number in range(10)]


def test_a_delivery_that_is_gone_leaves_nothing_to_flush_where_everything_is_at_the_sink(tmp_path: Path) -> None:
    """What is at the sinks is what the keepers know; that nobody could be asked to flush says nothing."""
    with running(settings_of(tmp_path, delivery=["", "die"])) as one:
        one.until(lambda status: status.changefeeds[0].mark_delete == "1:9")
        os.kill(one.pid("delivery"), signal.SIGKILL)
        one.until(lambda status: any(c.name == "delivery" and c.state != "running" for c in status.children))
        one.stop.request()
        summary = one.end()
    assert (summary.drained, summary.message) == (True, "")


class FastClock(SystemClock):
    """Counts twenty seconds in each."""

    def monotonic(self) -> float:
        return 20 * super().monotonic()


def test_a_stop_waits_for_a_long_batch(tmp_path: Path) -> None:
    """A driver that works on one and publishes nothing meanwhile is not stuck: what it works on is delivered."""
    clock = FastClock()

    class Fast(Running):
        def _run(self) -> None:
            self.summary = run(self.settings, on_progress=self.seen.append, stop_event=self.stop, clock=clock)

    settings = replace(settings_of(tmp_path, capture=["more"]), stop_seconds_max=20 * LIMIT_SECONDS)
    one = Fast(settings)
    try:
        one.until(lambda s: bool(s.changefeeds) and s.changefeeds[0].mark_delete == "1:9")
        (tmp_path / "long-batch").touch()
        (tmp_path / "more").touch()
        wait_until(lambda: not (tmp_path / "more").exists(), "one more entry")
        one.stop.request()
        wait_until(lambda: "capture stopped" in (tmp_path / "order.txt").read_text(), "the end of capture")
        began = clock.monotonic()
        wait_until(lambda: clock.monotonic() - began > 20, "twenty seconds, as the run counts them")
        assert one.summary is None
        (tmp_path / "long-batch").unlink()
        assert one.end().exit_code == 0
    finally:
        one.stop.request()
        one.stop.request()
        one.end()
    assert delivered(tmp_path)[-1] == "1:10"
