"""Capture into a real log: kills, restarts, and the process itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.entries.stores import SCHEMA_HISTORY, SOURCE, SOURCE_OPEN, SOURCE_POSITION
from penstock.errors import Unavailable
from penstock.log import LogReader
from penstock.sources.demo.source import DemoSource
from penstock.sources.demo.truth import truth
from penstock.supervisor.child import bound
from tests.capture.running import SIZE, capture, demo, expected_events, logged_events, state_of
from tests.support.waiting import LIMIT_SECONDS


def test_the_log_holds_every_event_once(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    assert capture(tmp_path / "log", DemoSource(demo()), report=said.append)
    assert logged_events(tmp_path / "log") == expected_events()
    state = state_of(tmp_path / "log")
    position = state.store(SOURCE_POSITION).get(SOURCE)
    assert position is not None
    end = DemoSource(demo()).end()
    assert (position.file, position.pos) == (end.file, end.pos)
    assert position.reaches(end)
    assert state.store(SOURCE_OPEN).get(SOURCE) is None
    tables = dict(state.store(SCHEMA_HISTORY).items())
    assert [key for key in tables if key[:2] == ("shop", "orders")] == [("shop", "orders", 0), ("shop", "orders", 1)]
    assert [c.name for c in tables["shop", "orders", 1].columns][-1] == "note"
    assert [event["event"] for event in said if event["event"] != "progress"] == ["ready", "caught-up"]
    assert said[-1]["log_end"] == str(LogReader.open(tmp_path / "log").end())


def test_a_second_run_adds_nothing(tmp_path: Path) -> None:
    capture(tmp_path / "log", DemoSource(demo()))
    before = logged_events(tmp_path / "log")
    capture(tmp_path / "log", DemoSource(demo()))
    assert logged_events(tmp_path / "log") == before


class Flaky:
    """The demo over a line that breaks after a few chunks, again and again."""

    def __init__(self, inner: DemoSource, chunks: int) -> None:
        self._inner, self._chunks = inner, chunks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, position: Any) -> Any:
        for number, chunk in enumerate(self._inner.open(position)):
            if number == self._chunks and not chunk.idle:
                raise Unavailable("the line broke")
            yield chunk


def test_lost_connections_lose_and_double_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    said: list[dict[str, Any]] = []
    source: Any = Flaky(DemoSource(demo(rate=5000), clock), 7)
    assert capture(tmp_path / "log", source, clock=clock, report=said.append)
    assert logged_events(tmp_path / "log") == expected_events()
    assert any(event["event"] == "retrying" for event in said)


def test_a_source_that_never_answers_is_given_up(tmp_path: Path) -> None:
    source: Any = Flaky(DemoSource(demo(), ManualClock()), 0)
    with pytest.raises(Unavailable, match="does not answer"):
        capture(tmp_path / "log", source, clock=ManualClock())


class Child:
    """The real process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            bound([sys.executable, "-m", "penstock.capture"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(settings) + "\n")
        self.process.stdin.flush()
        self.events: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def wait_for(self, name: str) -> dict[str, Any]:
        for _ in range(1200):
            found = [event for event in self.events if event["event"] == name]
            if found:
                return found[-1]
            assert self.process.poll() is None or self._thread.is_alive(), self.events
            time.sleep(0.05)
        raise AssertionError(self.events)

    def close_input(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(LIMIT_SECONDS)
        self._thread.join(LIMIT_SECONDS)
        return code


def test_the_process_killed_and_stopped_and_finished(tmp_path: Path) -> None:
    source = {"type": "demo", "seed": 5, "changes": SIZE, "rate": 1000}
    child = Child({"state_dir": str(tmp_path), "source": source, "until": None})
    child.wait_for("ready")
    time.sleep(0.7)
    child.process.kill()
    child.process.wait(LIMIT_SECONDS)
    child = Child({"state_dir": str(tmp_path), "source": source, "until": None})
    child.wait_for("progress")
    assert child.close_input() == 0
    child = Child({"state_dir": str(tmp_path), "source": {**source, "rate": 0}, "until": "now"})
    end = child.wait_for("caught-up")
    assert child.process.wait(LIMIT_SECONDS) == 0
    assert logged_events(tmp_path / "log") == expected_events()
    assert end["log_end"] == str(LogReader.open(tmp_path / "log").end())
    assert sum(table.changes for table in truth(5, SIZE).values()) > 0


def test_the_process_says_what_is_wrong(tmp_path: Path) -> None:
    child = Child({"state_dir": str(tmp_path), "source": {"type": "demo", "sed": 5}})
    assert child.process.wait(LIMIT_SECONDS) == 2
    assert "sed" in child.wait_for("error")["message"]
    child = Child({"state_dir": str(tmp_path), "source": {"type": "binlog-files", "path": str(tmp_path / "none")}})
    assert child.process.wait(LIMIT_SECONDS) == 3
    assert "no binlog files" in child.wait_for("error")["message"]


def test_sigterm_is_a_clean_end(tmp_path: Path) -> None:
    child = Child({"state_dir": str(tmp_path), "source": {"type": "demo", "changes": SIZE, "rate": 100}})
    child.wait_for("ready")
    child.process.send_signal(signal.SIGTERM)
    assert child.process.wait(LIMIT_SECONDS) == 0
