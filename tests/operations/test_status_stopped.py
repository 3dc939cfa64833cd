"""`penstock status` of a flow that does not run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from penstock.changefeed.keeper import Keeper
from penstock.cli.status import _show
from penstock.log import CursorTable, Log, LogReader, LogSettings
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


def test_a_look_makes_no_cursor_for_a_sink_that_never_ran(tmp_path: Path) -> None:
    """It held the log for ever, and nobody named it: `penstock forget` knew of no such sink."""
    with closing(Log.open(tmp_path / "log", LogSettings(maintenance_interval_seconds=0))) as log:
        log.append(b"an entry").result()
        with closing(LogReader.open(tmp_path / "log")) as reader:
            Keeper.open(tmp_path, "lake", reader).close()
            before = [path.name for path in (tmp_path / "cursors").iterdir()]
            assert read_status(Places(state_dir=tmp_path, sinks=("lake", "typo"))).stopped[1].mark_delete == "1:-1"
            with closing(CursorTable(reader, tmp_path / "cursors")) as table:
                assert [cursor.name for cursor in table.infos()] == ["lake"]
    assert [path.name for path in (tmp_path / "cursors").iterdir()] == before, "and one that is there is not taken"
