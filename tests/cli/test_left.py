"""Nothing says ✓ over rows that did not arrive: the end of a run and verify tell what is left."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.run import show_summary
from penstock.cli.verify import exit_code, show_report
from penstock.errors import BadInput
from penstock.files import REAL_FILES
from penstock.log import LogReader
from penstock.operations import extras
from penstock.operations.config.loading import load
from penstock.operations.demo import Demo
from penstock.operations.rows_left import RowsLeft, count_rows_left
from penstock.operations.verify.report import SinkReport, VerifyReport
from penstock.sources.demo.source import DemoSource
from penstock.supervisor.status import RunSummary
from tests.capture.running import capture, demo
from tools.components import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def test_the_end_of_a_run_tells_what_the_log_still_holds(capsys: pytest.CaptureFixture[str]) -> None:
    show_summary(RunSummary(0, 0, 0, 0, 1.0, drained=False, left_bytes={"lake": 60 << 20, "other": 0}), as_json=False)
    said = capsys.readouterr().out
    assert "✓" not in said and "lake: 60.0 MiB of the log are not at the sink yet" in said and "other" not in said
    left = RunSummary(6, 0, 0, 0, 1.0, drained=False, message="stopped before", left_bytes={"lake": 60 << 20})
    show_summary(left, {"lake": RowsLeft(60_000, complete=True)}, as_json=False)
    said = capsys.readouterr().out
    assert "lake: up to 60,000 changes, 60.0 MiB of the log, are not at the sink yet" in said
    assert "exit 6 (stopped before)" in said
    show_summary(left, {"lake": RowsLeft(60_000, complete=False)}, as_json=True)
    assert json.loads(capsys.readouterr().out)["left_rows"] == {"lake": 60_000}
    show_summary(RunSummary(0, 5, 1, 9, 1.0, drained=True, left_bytes={"lake": 0}), as_json=False)
    said = capsys.readouterr().out
    assert said.startswith("✓ 5 rows") and "not at the sink" not in said


def test_a_run_that_failed_tells_what_it_did_and_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    failed = RunSummary(3, 5, 1, 9, 1.0, drained=False, message="no", hint="do", left_bytes={"lake": 60 << 20})
    show_summary(failed, as_json=False)
    said = capsys.readouterr()
    assert "✓" not in said.out and "5 rows in 1 file," in said.out and "lake: 60.0 MiB of the log" in said.out
    assert "✗ no" in said.err
    show_summary(failed, as_json=True)
    said = capsys.readouterr()
    assert json.loads(said.out)["left_bytes"] == {"lake": 60 << 20}
    assert json.loads(said.err)["error"] == {"kind": "RunFailed", "message": "no", "hint": "do"}


def test_a_demo_that_failed_says_so_to_programs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = RunSummary(75, 0, 0, 0, 1.0, drained=False, message="no", hint="")
    monkeypatch.setattr("penstock.operations.demo.run", lambda *_, **__: failed)
    done = CliRunner().invoke(app, ["demo", "--directory", str(tmp_path / "demo"), "--json"])
    assert done.exit_code == 75
    assert json.loads(done.stderr)["error"]["message"] == "no"
    assert json.loads(done.stdout)["event"] == "summary"


def test_a_demo_does_not_pull_the_rug_from_under_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "demo"
    demo = Demo.prepare(directory, seconds=1, rate=100, say=print)
    demo.config.state_dir.mkdir()
    (demo.config.state_dir / "log").write_text("mine")
    with REAL_FILES.lock(demo.config.state_dir / "lock"):
        done = CliRunner().invoke(app, ["demo", "--directory", str(directory)])
        assert done.exit_code == 75 and "another process" in done.stderr
        assert (demo.config.state_dir / "log").read_text() == "mine"
    Demo.prepare(directory, seconds=1, rate=100, say=print)
    assert not demo.config.state_dir.exists()


def test_rows_that_are_left_are_counted_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text(
        "state_dir: ./state\nsource: {type: demo, seed: 5, changes: 2000}\nsinks:\n  lake: {url: ./lake, format: parquet}\n"
        "  orders: {url: ./orders, format: parquet, only: [shop.orders]}\n"
    )
    config = load(tmp_path / "penstock.yaml")
    assert capture(config.state_dir / "log", DemoSource(demo()))
    with closing(LogReader.open(config.state_dir / "log")) as reader:
        delivered = {"lake": f"{reader.first.ledger_id}:-1", "orders": str(reader.end())}
    left = count_rows_left(config, delivered, ["lake", "orders"], math.inf)
    assert left["orders"] == RowsLeft(0, complete=True)
    assert left["lake"].complete and left["lake"].rows >= 2000
    some = count_rows_left(config, {**delivered, "orders": delivered["lake"]}, ["orders"], math.inf)["orders"]
    assert 0 < some.rows < left["lake"].rows, "of the tables that this sink takes"
    assert not count_rows_left(config, delivered, ["lake"], seconds_max=-1)["lake"].complete


def test_verify_has_no_green_mark_over_undelivered_changes(capsys: pytest.CaptureFixture[str]) -> None:
    sink = SinkReport("lake")
    sink.differences.pending = 3002
    show_report(VerifyReport([sink]))
    said = capsys.readouterr().out
    assert "✓" not in said and "3,002 not delivered yet" in said
    assert "no run is there to deliver the rest" in said
    assert exit_code(VerifyReport([sink])) == 7
    assert exit_code(VerifyReport([sink], running=True)) == 0, "they are on their way"
    assert VerifyReport([sink]).to_json()["pending"] == 3002


def test_without_spark_a_run_ends_at_once_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "PACKAGES", ("no_such_package_anywhere",))
    monkeypatch.chdir(tmp_path)
    assert importlib.util.find_spec("no_such_package_anywhere") is None
    Path("penstock.yaml").write_text(
        "version: 1\nstate_dir: ./state\nsource: {type: demo, changes: 1000}\nsinks:\n  lake: {url: ./lake, format: parquet}\n"
    )
    for command in (["run"], ["run", "--once"], ["demo"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2 and "pip install 'penstock[spark]'" in done.stderr.replace("\n", " ")
    assert [path.name for path in tmp_path.iterdir()] == ["penstock.yaml"]


def _fake_spark(directory: Path, version: str) -> None:
    for name in ("pyspark", "pandas"):
        (directory / name).mkdir(parents=True)
        (directory / name / "__init__.py").write_text("raise SystemExit('imported')")
    (directory / "pyspark" / "version.py").write_text(f"__version__: str = '{version}'\n")


@pytest.mark.parametrize("version", ["3.4.1", "5.0.0.dev1"])
def test_another_spark_that_is_there_already_is_refused_by_its_version(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_spark(tmp_path, version)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)  # another test may have imported the real one
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadInput, match=rf"pyspark is {version[:3]} here, and Penstock needs 3.5 or newer and below 5"):
        extras.require_spark()


def test_the_bounds_of_spark_are_those_of_the_package() -> None:
    (bound,) = (one for one in PROJECT["optional-dependencies"]["spark"] if one.startswith("pyspark"))
    lowest, below = extras.PYSPARK_MIN, extras.PYSPARK_BELOW
    assert bound == f"pyspark>={lowest[0]}.{lowest[1]},<{below[0]}"


def test_without_java_a_run_ends_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")
    Path("penstock.yaml").write_text("source: {type: demo}\nsinks: {lake: {url: ./lake, format: parquet}}\n")
    for command in (["run"], ["demo"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2 and "JAVA_HOME is /nowhere/java" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["penstock.yaml"]


@pytest.mark.parametrize(
    ("settings", "package", "extra"),
    [
        ("state: {engine: rocksdb}", "rocksdict", "rocksdb"),
        ("log: {offload: {url: 's3://bucket/x'}}", "obstore", "objects"),
    ],
)
def test_other_extras_are_asked_for_where_they_are_needed(
    settings: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "penstock.yaml"
    path.write_text(f"source: {{type: demo}}\nsinks: {{lake: {{url: ./lake, format: parquet}}}}\n{settings}\n")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else found(name))
    done = CliRunner().invoke(app, ["run", "-c", str(path)])
    assert done.exit_code == 2 and f"pip install 'penstock[{extra}]'" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["penstock.yaml"]


@pytest.mark.parametrize(("log_end", "compared"), [(None, False), ("1:5", True)])
def test_a_demo_that_was_stopped_early_is_not_compared_with_what_was_still_to_come(
    log_end: str | None, compared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def verify(_config: object, *, with_source: bool) -> VerifyReport:
        asked.append(with_source)
        return VerifyReport([SinkReport("lake")])

    ended = RunSummary(0 if compared else 130, 5, 1, 9, 1.0, drained=True, log_end=log_end)
    monkeypatch.setattr("penstock.operations.demo.run", lambda *_, **__: ended)
    monkeypatch.setattr("penstock.operations.verify.verify.verify", verify)
    assert CliRunner().invoke(app, ["demo", "--directory", str(tmp_path / "demo")]).exit_code == 0
    assert asked == [compared]
