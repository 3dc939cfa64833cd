"""No ✓ where nothing is there to be compared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.capture.loop import Capture, open_log
from penstock.cli.verify import VerifyScreen, exit_code, show_report
from penstock.clock import ManualClock
from penstock.operations.config.loading import load
from penstock.operations.config.model import Config, Places
from penstock.operations.status import read_status
from penstock.operations.verify.verify import verify
from penstock.sources.demo.source import DemoSource
from penstock.sources.settings import DemoSettings

CHANGES = 1_000


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "penstock.yaml"
    path.write_text(
        f"version: 1\nstate_dir: ./state\nsource: {{type: demo, changes: {CHANGES}}}\n"
        "sinks:\n  lake: {url: ./lake, format: parquet}\n  text: {url: ./text, format: csv}\n"
    )
    (tmp_path / "state").mkdir(mode=0o700)
    return load(path)


def capture(config: Config, changes: int) -> None:
    log = open_log(config.state_dir)
    try:
        if changes:
            assert Capture(log, DemoSource(DemoSettings(type="demo", changes=changes))).run(until_now=True)
    finally:
        log.close()


def test_nothing_is_delivered(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    capture(config, CHANGES)
    told: list[tuple[int, int]] = []
    report = verify(config, sink="lake", progress=lambda _what, done, count: told.append((done, count)))
    (lake,) = report.sinks
    assert lake.differences.pending >= CHANGES and lake.differences.changes == 0
    assert lake.held == ["nothing was compared: nothing is delivered yet"]
    assert exit_code(report) == 7 and report.to_json()["held_back"]
    show_report(report)
    assert "✓" not in capsys.readouterr().out
    assert told == sorted(told) and told[-1][0] == told[-1][1] > 0


def test_no_file_stays_open(config: Config) -> None:
    """A program may ask as often as it likes."""
    capture(config, CHANGES)
    places = Places(state_dir=config.state_dir, sinks=tuple(config.sinks))
    verify(config)
    read_status(places)
    before = len(os.listdir("/proc/self/fd"))
    verify(config)
    read_status(places)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_nothing_was_captured(config: Config) -> None:
    capture(config, 0)
    report = verify(config, sink="lake")
    assert exit_code(report) == 7 and "the log has no change" in report.sinks[0].held[0]


def test_a_format_that_cannot_be_compared(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    capture(config, 0)
    report = verify(config, sink="text")
    assert exit_code(report) == 7 and report.equal
    show_report(report)
    assert "! text" in capsys.readouterr().out


def test_files_that_expired_are_no_peace(capsys: pytest.CaptureFixture[str]) -> None:
    from penstock.operations.verify.report import SinkReport, VerifyReport

    sink = SinkReport("lake", expired=5)
    show_report(VerifyReport([sink]))
    assert "✓" not in capsys.readouterr().out
    assert exit_code(VerifyReport([sink])) == 0, "the user asked for that"


def test_progress_without_a_terminal_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    with VerifyScreen(silent=False, clock=clock) as screen:
        for done in range(41):
            screen.update("lake with the log", done, 40)
            clock.advance(1)
    said = capsys.readouterr()
    assert said.err.splitlines() == [f"  comparing lake with the log: {done} %" for done in (25, 50, 75, 100)]
    with VerifyScreen(silent=True, clock=clock) as screen:
        clock.advance(100)
        screen.update("lake with the log", 1, 40)
    assert not capsys.readouterr().err and not said.out
