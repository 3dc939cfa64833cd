"""The context's settings and the place of its files, without a JVM. tests/e2e/test_second_user.py has the rest."""

from __future__ import annotations

import os
import re
import shlex
import socket
import stat
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.spark.jvm.context import Scratch, log4j_text, scratch_directory, spark_settings


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Its path is too long for a socket, and has characters that a shell would change."""
    return tmp_path / ("a long name " * 10) / 'with "quotes" and \\'


def test_all_files_go_below_the_state_directory_for_this_user_alone(state_dir: Path) -> None:
    scratch = Scratch(state_dir)
    settings = spark_settings(scratch)
    root = scratch_directory(state_dir)
    for key in ("spark.local.dir", "spark.sql.warehouse.dir"):
        assert Path(settings[key]).is_relative_to(root)
    options = shlex.split(settings["spark.driver.extraJavaOptions"])
    assert f"-Djava.io.tmpdir={root}/tmp" in options
    assert f"-XX:ErrorFile={root}/java-%p.log" in options
    assert "-XX:-UsePerfData" in options
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    assert modes == {0o700}


def test_sparks_sockets_are_in_it_by_a_short_name_that_its_processes_understand(state_dir: Path) -> None:
    directory = spark_settings(Scratch(state_dir))["spark.python.unix.domain.socket.dir"]
    name = f"{directory}/.{uuid.uuid4()}.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        assert [path.name for path in (scratch_directory(state_dir) / "tmp").iterdir()] == [Path(name).name]
        seen = subprocess.run(["ls", "-A", directory], capture_output=True, text=True, check=True)
        assert seen.stdout.strip() == Path(name).name


def test_what_an_earlier_driver_left_is_removed_and_its_log_stays(state_dir: Path) -> None:
    old = Scratch(state_dir)
    for path in (old.log, old.temporary / "libnative.so", old.local / "blockmgr", old.root / "checkpoints"):
        path.touch()
    new = Scratch(state_dir)
    assert [path.relative_to(new.root).as_posix() for path in sorted(new.root.rglob("*")) if path.is_file()] == [
        "spark.log"
    ]
    assert new.temporary.is_dir()


def test_of_what_java_writes_when_it_dies_the_newest_stay(state_dir: Path) -> None:
    root = Scratch(state_dir).root
    for pid in range(90, 95):
        (root / f"java-{pid}.log").write_text("a crash")
        os.utime(root / f"java-{pid}.log", (pid, 1000 - pid))  # the highest pid is the oldest
    Scratch(state_dir)
    assert sorted(path.name for path in root.glob("java-*")) == ["java-90.log", "java-91.log", "java-92.log"]


def test_temporary_files_of_python_go_there_too_while_spark_starts(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    scratch = Scratch(state_dir)
    before = tempfile.gettempdir()
    with scratch.for_temporary_files():
        assert Path(tempfile.mkdtemp()).parent == scratch.temporary
        assert os.environ["TMPDIR"] == str(scratch.temporary)
    assert "TMPDIR" not in os.environ
    assert tempfile.gettempdir() == before


@pytest.mark.parametrize(("version", "has"), [((3, 5), False), ((4, 0), False), ((4, 3), True), (None, True)])
def test_what_an_old_spark_does_not_have_is_left_out(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int] | None, has: bool
) -> None:
    monkeypatch.setattr("penstock.spark.jvm.context.pyspark_version", lambda: version)
    settings = spark_settings(Scratch(state_dir))
    assert ("spark.python.unix.domain.socket.enabled" in settings) is has
    assert ("spark.python.unix.domain.socket.dir" in settings) is has
    assert settings["spark.python.daemon.module"] == "penstock.spark.daemon"


@pytest.mark.parametrize(
    ("own", "authenticated"),
    [
        ({}, "true"),
        ({"master": "local[2,3]"}, "true"),
        ({"master": "spark://host:7077"}, None),
        ({"authenticate": "x"}, "x"),
    ],
)
def test_sparks_port_wants_a_secret_wherever_spark_makes_one(
    state_dir: Path, own: dict[str, str], authenticated: str | None
) -> None:
    assert spark_settings(Scratch(state_dir), own).get("spark.authenticate") == authenticated


def test_executors_elsewhere_are_not_sent_to_a_directory_of_this_machine(state_dir: Path) -> None:
    scratch, key = Scratch(state_dir), "spark.python.unix.domain.socket.dir"
    assert key in spark_settings(scratch, {"master": "local[2]"})
    there = spark_settings(scratch, {"master": "spark://host:7077"})
    assert not [name for name in there if "unix.domain" in name]
    assert (
        spark_settings(scratch, {"spark.master": "spark://host:7077", "python.unix.domain.socket.dir": "/x"})[key]
        == "/x"
    )


def test_a_scratch_that_others_may_write_to_is_refused(state_dir: Path) -> None:
    root = scratch_directory(state_dir)
    root.mkdir(parents=True)
    root.chmod(0o777)
    with pytest.raises(BadInput, match="can be written to by other users"):
        Scratch(state_dir)


def test_sparks_log_is_below_the_state_directory_whatever_its_name_is() -> None:
    """Log4j reads its settings as latin-1, and fills in variables: the log once went to a directory of another name."""
    text = log4j_text(Path("/home/zwölf ${env:HOME}/spark.log"))
    assert text.isascii()
    assert "appender.file.fileName = /home/zw\\u00f6lf $${env:HOME}/spark.log\n" in text


def test_a_name_in_sparks_log_cannot_paint() -> None:
    [pattern] = re.findall(r"layout\.pattern = (.*)", log4j_text(Path("/x")))
    assert pattern.endswith(r"%replace{%m%n%ex}{[\\p{C}\\p{Zl}\\p{Zp}&&[^\\n\\t]]}{?}")
