"""The class archive: where it lies, when it is wanted, and that Java takes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.jvm import class_archive
from penstock.spark.jvm.class_archive import ClassArchive, find_archive
from penstock.spark.jvm.installed import spark_home
from penstock.spark.jvm.java import choose_java
from tests.support.waiting import LIMIT_SECONDS


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java and a Spark, as far as an archive is concerned, and a cache directory."""
    for name in ("java/lib/server/classes.jsa", "spark/jars/a.jar"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PENSTOCK_CLASS_ARCHIVE")
    monkeypatch.setattr(class_archive, "choose_java", lambda: tmp_path / "java")
    monkeypatch.setattr(class_archive, "spark_home", lambda: tmp_path / "spark")
    return tmp_path


def test_it_lies_in_the_users_cache_and_is_another_one_for_another_java_or_spark(installed: Path) -> None:
    seen = {find_archive().path}
    assert [path.parent for path in seen if path] == [installed / "cache" / "penstock" / "java"]
    (installed / "spark" / "jars" / "b.jar").write_text("")
    seen.add(find_archive().path)
    (installed / "java" / "lib" / "server" / "classes.jsa").write_text("newer")
    seen.add(find_archive().path)
    assert len(seen) == 3 and None not in seen


def test_there_is_none_where_others_could_write_it_or_java_cannot(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "cache_places", lambda name: iter([installed / "open" / name]))
    (installed / "open" / "java").mkdir(parents=True)
    (installed / "open" / "java").chmod(0o777)
    assert find_archive() == ClassArchive(None)
    (installed / "open" / "java").chmod(0o700)
    assert find_archive().path is not None
    (installed / "java" / "lib" / "server" / "classes.jsa").unlink()
    assert find_archive() == ClassArchive(None)
    assert not ClassArchive(None).wanted and not ClassArchive(None).options()


def test_it_is_used_when_it_is_there_and_tried_once(installed: Path) -> None:
    archive = find_archive()
    assert archive.path is not None
    assert archive.wanted and archive.options() == []
    archive.path.with_suffix(".failed").touch()
    assert not archive.wanted
    archive.path.touch()
    assert archive.options() == [f"-XX:SharedArchiveFile={archive.path}"] and not archive.wanted


@pytest.mark.spark
@pytest.mark.slow
def test_it_is_made_and_java_takes_it_and_passes_over_one_that_does_not_fit(tmp_path: Path) -> None:
    java = choose_java()
    if java is None or not (java / "lib" / "server" / "classes.jsa").exists():
        pytest.skip("this Java has no archive of its own classes")
    cache = tmp_path / "cache"
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PENSTOCK_CLASS_ARCHIVE": ""}
    made = subprocess.run(
        [sys.executable, "-m", "penstock.spark.jvm.class_archive"],
        env=environment,
        capture_output=True,
        timeout=3 * LIMIT_SECONDS,  # half a minute of CPU in all, and others may be at work
        check=False,
    )
    assert made.returncode == 0, made.stderr
    left = sorted(path.suffix for path in (cache / "penstock" / "java").iterdir())
    assert left == [".jsa", ".lock"]
    [archive] = (cache / "penstock" / "java").glob("*.jsa")
    assert _classes_from(archive, java, tmp_path / "with.log") > 100
    archive.chmod(0o600)
    archive.write_bytes(b"half of an archive")
    assert _classes_from(archive, java, tmp_path / "without.log") == 0


def _classes_from(archive: Path, java: Path, log: Path) -> int:
    """How many classes a Spark that only says its version takes from the archive."""
    options = f"-Xshare:auto -XX:SharedArchiveFile={archive} -Xlog:class+load:file={log}"
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "JAVA_HOME": str(java),
        "SPARK_SUBMIT_OPTS": options,
    }
    program = spark_home() / "bin" / "spark-submit"
    subprocess.run([program, "--version"], env=environment, capture_output=True, timeout=LIMIT_SECONDS, check=True)
    return log.read_text().count("source: shared objects file (top)")
