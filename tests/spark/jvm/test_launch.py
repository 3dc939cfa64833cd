"""How Spark's JVM is started; tests/spark/test_process.py starts a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import Unavailable
from penstock.spark.jvm import launch
from tests.spark.jvm.test_java import fake_java


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launch sets in this process is undone."""
    for name in ("SPARK_HOME", "SPARK_LAUNCHER_OPTS", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "x")
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)


def test_what_the_user_submits_with_comes_after_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ["--properties-file", "/a b", "--load-spark-defaults"]
    assert launch._arguments(Path("/a b"), with_defaults=True) == [*ours, "pyspark-shell"]
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages a:b:1 pyspark-shell")
    assert launch._arguments(Path("/a b"), with_defaults=True) == [*ours, "--packages", "a:b:1", "pyspark-shell"]


@pytest.mark.parametrize(("version", "passed"), [((3, 5), False), ((4, 0), True), (None, True)])
def test_the_users_defaults_count_with_every_spark(
    version: tuple[int, int] | None, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 3.5 reads either a file of settings or the defaults: it gets both in one file, ours last."""
    monkeypatch.setattr(launch, "pyspark_version", lambda: version)
    assert launch._loads_defaults() is passed
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert launch._defaults_text(tmp_path) == ""
    (tmp_path / "spark-defaults.conf").write_text("spark.a  b")
    assert launch._defaults_text(tmp_path) == "spark.a  b\n"


def test_a_java_that_ends_at_once_is_told_with_the_place_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "java", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    started = launch.Launch(tmp_path / "state")
    with pytest.raises(Unavailable, match="Spark did not start: Java ended with exit code") as caught:
        started.context()
    assert str(tmp_path / "state") in caught.value.hint
    assert not (tmp_path / "state" / "run" / "spark" / "session.properties").exists()
