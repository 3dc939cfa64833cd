"""The command as a user types it: help that teaches, errors that say what to do, exit codes that scripts can read."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli.main import app
from tests.support.waiting import LIMIT_SECONDS

COMMANDS = ("init", "check", "run", "state", "status", "verify", "demo", "binlog", "log")
GROUPS = ("binlog", "log", "state")


def penstock(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=LIMIT_SECONDS, check=False)


def test_help_names_every_command(tmp_path: Path) -> None:
    done = penstock("--help", cwd=tmp_path)
    assert done.returncode == 0
    for name in COMMANDS:
        assert name in done.stdout
    registered = {c.name for c in app.registered_commands} | {g.name for g in app.registered_groups}
    assert registered == set(COMMANDS)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in GROUPS])
def test_every_command_has_help_and_json(command: str, tmp_path: Path) -> None:
    done = penstock(command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "--json" in done.stdout


def test_init_check_and_refusals(tmp_path: Path) -> None:
    assert penstock("init", cwd=tmp_path).returncode == 0
    again = penstock("init", cwd=tmp_path)
    assert again.returncode == 2
    assert "nothing was changed" in again.stderr
    checked = penstock("check", cwd=tmp_path)
    assert checked.returncode == 0
    assert "sinks.lake.format" in checked.stdout
    (tmp_path / "penstock.yaml").write_text("version: 1\nsource: {type: oracle}\nsinks: {}\n")
    refused = penstock("check", "--json", cwd=tmp_path)
    assert refused.returncode == 2
    answer = json.loads(refused.stdout)
    assert not answer["ok"]
    assert {p["key"] for p in answer["problems"]} == {"source", "sinks"}


def test_check_starts_no_jvm_and_is_quick(tmp_path: Path) -> None:
    penstock("init", cwd=tmp_path)
    code = (
        "import sys; from penstock.operations.config.loading import load; from pathlib import Path; load(Path('penstock.yaml'));"
        "sys.exit(any(m in sys.modules for m in ('pyspark', 'numba', 'pyarrow')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, "reading the configuration loads a heavy library"


@pytest.mark.parametrize("command", ["run", "status", "verify", "check"])
def test_no_file_is_a_calm_error(command: str, tmp_path: Path) -> None:
    done = penstock(command, cwd=tmp_path)
    assert done.returncode == 2
    assert "no such file" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_verify_before_anything_ran(tmp_path: Path) -> None:
    penstock("init", cwd=tmp_path)
    done = penstock("verify", cwd=tmp_path)
    assert done.returncode == 2
    assert "nothing was captured yet" in done.stderr


def test_status_of_a_stopped_flow(tmp_path: Path) -> None:
    penstock("init", cwd=tmp_path)
    before = time.monotonic()
    done = penstock("status", "--json", cwd=tmp_path)
    assert done.returncode == 5
    assert json.loads(done.stdout)["run"] is None
    assert time.monotonic() - before < 60


def test_binlog_decode_refuses_what_is_no_binlog(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"this is no binlog at all")
    done = penstock("binlog", "decode", str(path), cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.corpus
def test_binlog_decode_of_a_real_file(corpus_dir: Path, tmp_path: Path) -> None:
    done = penstock("binlog", "decode", str(corpus_dir / "mariadb-10.11" / "numeric.binlog"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(event.get("rows") for event in events)


def test_demo_refuses_a_directory_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("keep me")
    done = penstock("demo", "--directory", "mine", cwd=tmp_path)
    assert done.returncode == 2
    assert "nothing was changed" in done.stderr
    assert (tmp_path / "mine" / "precious.txt").read_text() == "keep me"
