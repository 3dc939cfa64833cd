"""Nothing says ✓ over rows that did not arrive: the end of a run and verify tell what is left."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.run import show_summary
from penstock.cli.verify import show_report
from penstock.operations import spark_extra
from penstock.operations.verify.report import SinkReport, VerifyReport
from penstock.supervisor.status import RunSummary


def test_the_end_of_a_run_tells_what_the_log_still_holds(capsys: pytest.CaptureFixture[str]) -> None:
    show_summary(RunSummary(0, 0, 0, 0, 1.0, drained=False, left_bytes={"lake": 60 << 20, "other": 0}), as_json=False)
    said = capsys.readouterr().out
    assert "✓" not in said and "lake: 60.0 MiB of the log are not at the sink yet" in said and "other" not in said
    show_summary(RunSummary(0, 5, 1, 9, 1.0, drained=True, left_bytes={"lake": 0}), as_json=False)
    said = capsys.readouterr().out
    assert said.startswith("✓ 5 rows") and "not at the sink" not in said


def test_verify_has_no_green_mark_over_undelivered_changes(capsys: pytest.CaptureFixture[str]) -> None:
    sink = SinkReport("lake")
    sink.differences.pending = 3002
    show_report(VerifyReport([sink]))
    said = capsys.readouterr().out
    assert "✓" not in said and "3,002 not delivered yet" in said


def test_without_spark_a_run_ends_at_once_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_extra, "PACKAGES", ("no_such_package_anywhere",))
    monkeypatch.chdir(tmp_path)
    assert importlib.util.find_spec("no_such_package_anywhere") is None
    Path("penstock.yaml").write_text(
        "version: 1\nstate_dir: ./state\nsource: {type: demo, changes: 1000}\nsinks:\n  lake: {url: ./lake, format: parquet}\n"
    )
    for command in (["run"], ["run", "--once"], ["demo"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2 and "pip install 'penstock[spark]'" in done.stderr.replace("\n", " ")
    assert [path.name for path in tmp_path.iterdir()] == ["penstock.yaml"]
