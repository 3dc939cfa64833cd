"""The command as a user types it: help that teaches, errors that say what to do, exit codes that scripts can read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.main import app
from tests.support.waiting import LIMIT_SECONDS

COMMANDS = (
    *(
        "init",
        "check",
        "plan",
        "run",
        "status",
        "lag",
        "tail",
        "errors",
        "pause",
        "resume",
        "backfill",
        "reload",
        "forget",
        "verify",
    ),
    "demo",
    *("config", "dispatchers", "binlog", "log", "state", "spool"),
)
GROUPS = ("binlog", "log", "state", "spool", "config")


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
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"ddl", "insert"} <= {line["op"] for line in lines}
    assert not done.stderr, "a progress bar is for terminals"


@pytest.mark.corpus
def test_binlog_decode_by_events_and_stats(corpus_dir: Path, tmp_path: Path) -> None:
    path = str(corpus_dir / "mariadb-10.11" / "numeric.binlog")
    done = penstock("binlog", "decode", "--events", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert any(json.loads(line).get("rows") for line in done.stdout.splitlines())
    refused = penstock("binlog", "decode", "--events", "--table", "a.b", path, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--events shows the file as it is: --table does not go with it" in refused.stderr
    figures = json.loads(penstock("binlog", "stats", "--json", path, cwd=tmp_path).stdout)
    shown = penstock("binlog", "stats", path, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert f"{figures['transactions']['committed']} transactions committed" in shown.stdout
    assert all(f"{table['schema']}.{table['table']}" in shown.stdout for table in figures["tables"])


@pytest.mark.corpus
def test_binlog_stats_and_decode_of_a_file_that_is_cut(corpus_dir: Path, tmp_path: Path) -> None:
    whole = (corpus_dir / "mariadb-10.11" / "numeric.binlog").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:-3])
    for command in ("decode", "stats"):
        done = penstock("binlog", command, "cut", cwd=tmp_path)
        assert done.returncode == 3
        assert "ends in the middle of an event" in done.stderr
        assert len(done.stdout.splitlines()) > 5, "what was before it is shown"


@pytest.mark.corpus
def test_binlog_decode_by_events_shows_what_is_before_damage(corpus_dir: Path, tmp_path: Path) -> None:
    damaged = bytearray((corpus_dir / "mariadb-10.11" / "numeric.binlog").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    done = penstock("binlog", "decode", "--events", "damaged", cwd=tmp_path)
    assert done.returncode == 3
    assert "damaged: binlog event at offset" in done.stderr and "checksum" in done.stderr
    assert len(done.stdout.splitlines()) > 5
    (tmp_path / "empty").touch()
    assert penstock("binlog", "decode", "--events", "empty", cwd=tmp_path).returncode == 2


@pytest.fixture
def plain_interrupts() -> Iterator[None]:
    """As at a terminal: tests that a shell started in its background ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("plain_interrupts")
def test_the_first_interrupt_waits_until_files_are_whole_and_the_second_does_not() -> None:
    from penstock.cli.binlog import _calm_end

    with _calm_end(wait=True) as may_end:
        may_end()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            may_end()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with _calm_end(wait=False), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_help_flows_to_the_width_of_the_terminal(tmp_path: Path) -> None:
    from penstock.cli.help import flowing

    assert (
        flowing("One\n    two.\n\n    three\n    four\n\n      $ an example\n")
        == "One two.\n\nthree four\n\n  $ an example"
    )
    done = penstock("binlog", "decode", "--help", cwd=tmp_path)
    said = [line.strip() for line in done.stdout.splitlines()]
    first = next(i for i, line in enumerate(said) if line.startswith("A line is one change"))
    paragraph = said[first : said.index("", first)]
    assert all(len(line) > 60 for line in paragraph[:-1]), paragraph


def test_demo_refuses_a_directory_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("keep me")
    done = penstock("demo", "--directory", "mine", cwd=tmp_path)
    assert done.returncode == 2
    assert "nothing was changed" in done.stderr
    assert (tmp_path / "mine" / "precious.txt").read_text() == "keep me"
