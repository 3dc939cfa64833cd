"""`penstock status` of a flow that does not run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from penstock.changefeed.keeper import Keeper
from penstock.cli.status import _show
from penstock.log import Log, LogReader, LogSettings
from penstock.operations.config.model import Places
from penstock.operations.status import read_status


def shown(places: Places, capsys: pytest.CaptureFixture[str]) -> str:
    _show(read_status(places))
    return " ".join(capsys.readouterr().out.split())


def test_a_sink_that_has_nothing_yet_is_no_position(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its cursor stands before the first entry of the first ledger; `1:-1` was shown as what is delivered."""
    places = Places(state_dir=tmp_path, sinks=("lake",))
    assert "lake: delivered through nothing yet" in shown(places, capsys), "before there is a log"
    with closing(Log.open(tmp_path / "log", LogSettings(maintenance_interval_seconds=0))) as log:
        log.append(b"an entry").result()
        with closing(LogReader.open(tmp_path / "log")) as reader:
            Keeper.open(tmp_path, "lake", reader).close()  # as by a run whose sink could not be reached
    assert "lake: delivered through nothing yet" in shown(places, capsys)
