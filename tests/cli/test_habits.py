"""What a user may expect of any command: help, where errors go, one meaning for each exit code, never a stack trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from penstock import process
from penstock.cli.main import app
from penstock.operations.config.loading import load
from penstock.operations.config.template import render
from penstock.process import EXIT_CODES
from tests.support.waiting import LIMIT_SECONDS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_SOURCE_PASSWORD", raising=False)
    monkeypatch.delenv("PENSTOCK_LOG_LEVEL", raising=False)


def penstock(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def configure(path: Path, **values: Any) -> None:
    base = {"version": 1, "source": {"type": "demo"}, "sinks": {"lake": {"url": "./lake", "format": "parquet"}}}
    path.write_text(yaml.safe_dump({**base, **values}))


@pytest.mark.parametrize("arguments", [(), ("run",), ("log",), ("log", "verify"), ("state", "get"), ("binlog",)])
def test_help_has_a_short_name(arguments: tuple[str, ...]) -> None:
    assert penstock(*arguments, "-h").exit_code == 0
    assert penstock(*arguments, "-h").output == penstock(*arguments, "--help").output


def test_python_runs_the_package() -> None:
    command = [sys.executable, "-m", "penstock", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("penstock ")


def test_completion_can_be_installed() -> None:
    assert "--install-completion" in penstock("--help").output


@pytest.mark.parametrize("command", ["check", "init", "status"])
def test_ctrl_c_never_looks_like_an_answer(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 is an answer: not equal, not there."""
    from penstock.cli import check, init, status

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    configure(tmp_path / "penstock.yaml")
    for module, name in ((check, "load"), (init, "say"), (status, "load_places")):
        monkeypatch.setattr(module, name, interrupt)
    assert penstock(command, *(["--force"] if command == "init" else [])).exit_code == (
        0 if command == "status" else 130
    )


def test_ctrl_c_while_python_still_loads_is_no_stack_trace() -> None:
    code = (
        "import sys, signal, builtins, penstock.__main__ as start; usual = builtins.__import__\n"
        "def load(name, *rest):\n"
        "    if name == 'penstock.cli.main': signal.raise_signal(signal.SIGINT)\n"
        "    return usual(name, *rest)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler); builtins.__import__ = load; start.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("arguments", [("check",), ("check", "--json"), ("status",), ("status", "--json")])
def test_a_reader_that_goes_away_is_no_answer_and_no_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    configure(tmp_path / "penstock.yaml")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "penstock", *arguments]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=LIMIT_SECONDS, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_output_that_is_closed_or_full(tmp_path: Path) -> None:
    configure(tmp_path / "penstock.yaml")
    closed = f"{sys.executable} -m penstock check --json >&-"
    assert subprocess.run(closed, shell=True, timeout=LIMIT_SECONDS, check=False).returncode == 0
    full = f"{sys.executable} -m penstock check > /dev/full"
    done = subprocess.run(full, shell=True, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 70
    assert "No space left" in done.stderr and "Traceback" not in done.stderr


def test_exit_codes_are_documented_and_have_one_meaning_each() -> None:
    names = {name: value for name, value in vars(process).items() if re.fullmatch(r"EXIT_[A-Z_]+", name)}
    codes = [value for value in names.values() if isinstance(value, int)]
    assert sorted(codes) == sorted(EXIT_CODES), "each code once, each explained"
    page = (ROOT / "docs" / "cli.md").read_text()
    told = {int(code): text for code, text in re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE)}
    assert told == EXIT_CODES
    help_text = " ".join(penstock("--help").output.replace("│", " ").split())
    assert all(f"{code} {meaning}" in help_text for code, meaning in EXIT_CODES.items())


def test_a_stopped_flow_and_a_wrong_file_have_different_codes(tmp_path: Path) -> None:
    configure(tmp_path / "penstock.yaml")
    assert penstock("status", "--json").exit_code == 5
    (tmp_path / "penstock.yaml").write_text("state_dir: [1]\n")
    assert penstock("status", "--json").exit_code == 2


def test_status_needs_no_secret(tmp_path: Path) -> None:
    source = {"type": "mariadb", "user": "u", "host": "${NOT_SET}", "password": "${PENSTOCK_SOURCE_PASSWORD}"}
    configure(tmp_path / "penstock.yaml", source=source)
    done = penstock("status", "--json")
    assert done.exit_code == 5
    assert [feed["name"] for feed in json.loads(done.stdout)["stopped"]] == ["lake"]
    configure(tmp_path / "penstock.yaml", state_dir="${NOT_SET}/x")
    assert "NOT_SET is not set" in penstock("status").stderr


@pytest.mark.parametrize(
    "arguments", [("run",), ("status",), ("verify",), ("log", "ls", "none"), ("state", "ls", "none")]
)
def test_errors_go_to_standard_error_as_json_too(arguments: tuple[str, ...]) -> None:
    done = penstock(*arguments, "--json")
    assert done.exit_code != 0
    assert done.stdout == ""
    assert set(json.loads(done.stderr)["error"]) == {"kind", "message", "hint"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("init", "--source", "mariadb://u@h:abc"), "is no URL of a source"),
        (("init", "--source", "mariadb://u@[h"), "is no URL of a source"),
        (("init", "--source", "mariadb://"), "names no host"),
        (("init", "--source", "oracle://u@h"), "is not known"),
        (("init", "--source", "mariadb://u@h:0"), "greater than or equal to 1"),
        (("init", "--source", ""), "names no source"),
        (("init", "--sink", "kafka://h/x"), "kafka:// are not supported"),
        (("init", "--sink", "file://host/x"), "names no host"),
        (("init", "--sink", ""), "names no directory"),
        (("init", "--sink", "", "-c", "/tmp/x"), "names no directory"),
        (("init", "-c", "/nowhere/x"), "/nowhere/x cannot be written: No such file or directory"),
        (("init", "-c", "."), "."),
        (("run",), "there is no such file"),
        (("check", "-c", "."), "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(arguments: tuple[str, ...], says: str) -> None:
    done = penstock(*arguments)
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert not isinstance(done.exception, ValueError | OSError)
    assert not Path("penstock.yaml").exists()


@pytest.mark.parametrize("command", ["run", "check", "status"])
@pytest.mark.parametrize(
    "text",
    [
        "source: &a\n  type: *a\n",
        "a: &a [*a]\n",
        "sinks: " + "[" * 5000 + "]" * 5000 + "\n",
        "\n".join(
            ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
        ),
    ],
    ids=["recursive mapping", "recursive list", "deep", "growing"],
)
def test_yaml_that_contains_itself_is_refused(command: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text(text)
    done = penstock(command)
    assert done.exit_code == 2
    assert "nested too deeply" in done.stderr


def test_a_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    configure(tmp_path / "penstock.yaml", state_dir="file/state")
    done = penstock("run")
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr


def test_an_unexpected_error_is_told_as_such(tmp_path: Path) -> None:
    code = (
        "import sys, penstock.cli.main as m; sys.argv = ['penstock', 'check'];"
        "import penstock.cli.check as c; m.app.registered_commands[1].callback = None;"
        "m.app = lambda **_: 1 / 0; m.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 70
    assert "unexpected ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    "place", ["./my lake #1", "a: b", "- x", "*x", "'", '"', "yes", "12", "~", "null", "ü\u2028", "a\nb"]
)
def test_init_quotes_what_it_writes(place: str, tmp_path: Path) -> None:
    config = tmp_path / "penstock.yaml"
    config.write_text(render("./bin log #1", place))
    assert yaml.safe_load(config.read_text())["sinks"]["lake"]["url"] == place
    assert yaml.safe_load(config.read_text())["source"]["path"] == "./bin log #1"
    assert load(config).sinks["lake"].url == (tmp_path / place).resolve().as_uri()


def test_init_writes_what_check_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SOURCE_PASSWORD", "hush-hush")
    for source in (
        "demo",
        "./binlogs",
        "mariadb://repl%40x@[::1]:3307",
        "mariadb://db.internal",
        "mysql://db.internal",
    ):
        assert penstock("init", "--force", "--source", source, "--sink", "./my lake #1").exit_code == 0
        assert penstock("check", "--offline").exit_code == 0


def test_paths_in_a_file_are_relative_to_it_and_init_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    assert penstock("init", "--source", "./binlogs", "--sink", "out", "-c", "conf/flow.yaml").exit_code == 0
    config = load(Path("conf/flow.yaml"))
    assert config.source.path.resolve() == tmp_path / "binlogs"  # type: ignore[union-attr]
    assert config.sinks["lake"].url == (tmp_path / "out").as_uri()
    assert config.state_dir == tmp_path / "conf" / "penstock-data"
    monkeypatch.chdir("/")
    assert load(tmp_path / "conf" / "flow.yaml") == config, "the directory of the command does not matter"


def test_every_path_of_a_server_is_relative_to_the_file(tmp_path: Path) -> None:
    source = {
        "type": "mariadb",
        "user": "u",
        "unix_socket": "run/x.sock",
        "password_file": "pw",
        "tls": {"ca": "tls/ca.pem", "cert": "tls/cert.pem", "key": "tls/key.pem"},
    }
    configure(tmp_path / "penstock.yaml", source=source)
    found = load(tmp_path / "penstock.yaml").source
    assert found.unix_socket == tmp_path / "run/x.sock"  # type: ignore[union-attr]
    assert found.password_file == tmp_path / "pw"  # type: ignore[union-attr]
    tls = found.tls  # type: ignore[union-attr]
    assert (tls.ca, tls.cert, tls.key) == tuple(tmp_path / "tls" / f"{n}.pem" for n in ("ca", "cert", "key"))


def test_the_level_of_the_log_reaches_the_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    from penstock.observe.logging import configure as configure_log

    configure(tmp_path / "penstock.yaml")
    before = logging.getLogger().level, logging.getLogger().handlers[:]
    monkeypatch.setenv("PENSTOCK_LOG_LEVEL", "info")  # put back after the test
    try:
        assert penstock("--log-level", "debug", "check").exit_code == 0
        assert os.environ["PENSTOCK_LOG_LEVEL"] == "debug"
        configure_log("capture")
        assert logging.getLogger().level == logging.DEBUG
        assert penstock("--log-level", "DEBUG", "check").exit_code == 0
        assert os.environ["PENSTOCK_LOG_LEVEL"] == "debug"
        assert penstock("--log-level", "loud", "check").exit_code == 2
    finally:
        logging.getLogger().handlers[:] = before[1]
        logging.getLogger().setLevel(before[0])


@pytest.mark.parametrize("as_json", [False, True])
def test_plain_text_to_a_remote_server_is_told_at_each_start(
    as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.supervisor import supervisor
    from penstock.supervisor.status import RunSummary

    monkeypatch.setattr(supervisor, "run", lambda *_, **__: RunSummary(0, 0, 0, 0, 0.1, drained=True))
    source: dict[str, Any] = {"type": "mariadb", "user": "u", "host": "db.internal", "tls": {"mode": "disabled"}}
    configure(tmp_path / "penstock.yaml", source=source)
    for _ in range(2):
        done = penstock("run", *(["--json"] if as_json else []))
        assert done.exit_code == 0
        assert "plain text to db.internal" in done.stderr
        assert not as_json or json.loads(done.stderr)["level"] == "warning"
    del source["tls"]
    configure(tmp_path / "penstock.yaml", source=source)
    assert penstock("run").stderr == ""


@pytest.mark.parametrize("key", ["master", "spark.master"])
def test_a_cluster_that_asks_nobody_who_he_is_is_told_at_each_start(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.supervisor import supervisor
    from penstock.supervisor.status import RunSummary

    monkeypatch.setattr(supervisor, "run", lambda *_, **__: RunSummary(0, 0, 0, 0, 0.1, drained=True))
    spark = {key: "spark://127.0.0.1:7077"}
    configure(tmp_path / "penstock.yaml", spark=spark)
    assert "spark.authenticate is not set" in penstock("run").stderr
    assert "spark.authenticate is not set" in penstock("check", "--offline").stdout
    assert len(json.loads(penstock("check", "--offline", "--json").stdout)["exposures"]) == 1
    configure(tmp_path / "penstock.yaml", spark={**spark, "authenticate": True, "authenticate.secret": "s" * 20})
    assert penstock("run").stderr == ""
    configure(tmp_path / "penstock.yaml", spark={key: "local[2]"})
    assert penstock("run").stderr == ""
