"""The maintenance thread: it never ends in silence, whatever its work raises."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import Fenced
from penstock.log import Log, LogSettings
from penstock.log.retention.maintenance import Maintenance
from penstock.log.retention.trim import Trimmer
from penstock.observe.metrics import METRICS


def until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        time.sleep(0.005)
    raise AssertionError("it never came")


def test_an_error_that_nobody_expected_is_told_and_the_next_round_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before: the thread ended, and nothing was ever trimmed again."""
    fails = True
    right = Trimmer.trim

    def trim(self: Trimmer) -> list[int]:
        if fails:
            raise ZeroDivisionError("a mistake")
        return right(self)

    monkeypatch.setattr(Trimmer, "trim", trim)
    before = METRICS.registry.get_sample_value("penstock_log_maintenance_failures_total") or 0
    settings = LogSettings(maintenance_interval_seconds=0.01, retention_seconds=0, preallocate_bytes=0)
    with caplog.at_level(logging.WARNING), Log.open(tmp_path / "log", settings) as log:
        log.append(b"x").result()
        log.roll()
        until(lambda: log.statistics().maintenance_failures >= 3)
        assert log.statistics().maintenance_error == "a mistake"
        assert log.state == "open", "appends do not need the maintenance"
        fails = False
        until(lambda: log.statistics().maintenance_error == "")
        until(lambda: log.statistics().entries == 0)
    after = METRICS.registry.get_sample_value("penstock_log_maintenance_failures_total") or 0
    assert after - before >= 3
    told = [record for record in caplog.records if "ZeroDivisionError: a mistake" in record.getMessage()]
    assert len(told) == 1, "told once, not in each round"
    assert told[0].levelno == logging.ERROR
    assert told[0].exc_info, "with where it came from"


def test_a_log_that_has_stopped_ends_the_thread() -> None:
    done = threading.Event()

    def work() -> None:
        done.set()
        raise Fenced("another owner")

    maintenance = Maintenance("log", 0.01, work)
    maintenance.start()
    done.wait(10)
    until(lambda: maintenance.last_error is not None)
    maintenance.close()
    assert isinstance(maintenance.last_error, Fenced)
    assert maintenance.failures == 1
