"""The state of a log and its error, for whoever holds a handle."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from penstock.errors import Fenced, OutcomeUnknown, PenstockError
from penstock.files.memory import DiskFault, MemoryFiles
from penstock.log import Log, LogSettings, LogState, Terminated
from penstock.metadata import MemoryMetadata
from tests.support.files import UnlockedFiles

SETTINGS = LogSettings(preallocate_bytes=0, maintenance_interval_seconds=0)


def test_open_terminated_closed(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", SETTINGS)
    other = Log.open(tmp_path / "log")
    assert (log.state, log.error) == (LogState.OPEN, None)
    assert log.statistics().state == "open"
    log.append(b"x").result()
    log.terminate()
    assert log.state is LogState.TERMINATED
    assert isinstance(log.error, Terminated)
    log.close()
    assert (log.state, other.state) == (LogState.CLOSED, LogState.TERMINATED)
    other.close()
    again = Log.open(tmp_path / "log", SETTINGS)
    assert again.state == "terminated"
    again.close()


def test_a_replaced_owner_is_fenced(tmp_path: Path) -> None:
    old = Log.open(tmp_path / "log", SETTINGS, UnlockedFiles())
    new = Log.open(tmp_path / "log", SETTINGS, UnlockedFiles())
    with pytest.raises(Fenced):
        old.append(b"x").result()
    assert (old.state, new.state) == (LogState.FENCED, LogState.OPEN)
    assert isinstance(old.error, Fenced)
    with contextlib.suppress(Fenced):
        old.close()
    assert old.state is LogState.CLOSED
    assert isinstance(old.error, Fenced), "a closed handle still says why it had stopped"
    new.close()


def test_a_log_of_which_nobody_knows_the_end_has_stopped() -> None:
    """Every write of the ledgers and of the `end` file fails: what was appended may be there, or not."""
    files, metadata = MemoryFiles(), MemoryMetadata()
    log = Log.open(Path("/log"), SETTINGS, files, metadata=metadata)
    log.append(b"first").result()

    def fail(number: int, name: str, path: Path) -> None:
        if name in {"datasync", "write_at", "append"}:
            files.fail_at(number, DiskFault.EIO)

    files.on_operation = fail
    with pytest.raises(OutcomeUnknown):
        log.append(b"second").result()
    files.on_operation = None
    assert log.state is LogState.STOPPED
    error = log.error
    assert isinstance(error, OutcomeUnknown)
    assert log.statistics().error == str(error)
    assert log.error is not error, "an error that is raised belongs to one caller"
    with contextlib.suppress(PenstockError):
        log.close()
