"""No secret of a configuration is ever to be read by others: a canary stands in every place that takes one, a flow runs, and
everything that it shows, writes or hands to a process is searched for it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.flow import PENSTOCK, _descendants, _read
from tests.support.waiting import LIMIT_SECONDS, wait_until
from tools.components import free_port
from tools.components.mariadb import MariaDbServer

pytestmark = [pytest.mark.spark, pytest.mark.mariadb, pytest.mark.slow]
CANARY = "c4n4ry-"  # every secret of the test begins with it
SPARK_SECRETS = (
    "hadoop.fs.s3a.secret.key",
    "hadoop.fs.s3a.access.key",
    "hadoop.fs.s3a.session.token",
    "hadoop.fs.s3a.server-side-encryption.key",
    "hadoop.fs.azure.account.key.acme.dfs.core.windows.net",
    "hadoop.google.cloud.auth.service.account.private.key",
    "hadoop.javax.jdo.option.ConnectionPassword",
    "spark.ssl.keyPassword",
    "spark.my.passphrase",
)
DATABASE = "canary"


class Watch:
    """Reads the arguments of every process of the machine again and again, and the environments of a family."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._over = threading.Event()
        self.arguments: set[bytes] = set()
        self.environments: set[bytes] = set()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    self._note(entry / "cmdline", self.arguments)
            for pid in _descendants(self._root):
                # A process that was just forked is still its parent, whose own environment the user has filled.
                if _read(f"/proc/{pid}/cmdline") != _read(f"/proc/{self._root}/cmdline"):
                    self._note(Path(f"/proc/{pid}/environ"), self.environments)

    @staticmethod
    def _note(path: Path, found: set[bytes]) -> None:
        try:
            text = path.read_bytes()
        except OSError:
            return
        if text:
            found.add(text)

    def end(self) -> None:
        self._over.set()
        self._thread.join(LIMIT_SECONDS)


def configuration(directory: Path, server: MariaDbServer, port: int) -> Path:
    spark: dict[str, Any] = {key: f"{CANARY}{n:02d}" for n, key in enumerate(SPARK_SECRETS)}
    spark["hadoop.fs.s3a.session.token"] = "${CANARY_TOKEN}"
    spark["hadoop.some.url"] = f"jdbc:mysql://me:{CANARY}url@host/db"
    spark |= {"master": "local[2,3]", "ui.enabled": "true", "ui.port": str(port)}
    (directory / "events").mkdir()
    spark |= {"eventLog.enabled": "true", "eventLog.compress": "false", "eventLog.dir": (directory / "events").as_uri()}
    value = {
        "version": 1,
        "state_dir": "state",
        "source": {
            "type": "mariadb",
            "host": "127.0.0.1",
            "port": server.port,
            "user": "canary",
            "password": "${CANARY_PASSWORD}",
            "tables": {"include": [f"{DATABASE}.*"]},
        },
        "sinks": {"lake": {"url": "lake", "format": "parquet", "flush": {"every": "0.5s"}}},
        "spark": spark,
    }
    path = directory / "penstock.yaml"
    path.write_text(yaml.safe_dump(value))
    return path


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    secrets = {"CANARY_PASSWORD": f"{CANARY}password", "CANARY_TOKEN": f"{CANARY}token"}
    with tempfile.TemporaryDirectory() as temporary:
        yield {**os.environ, **secrets, "TMPDIR": temporary}


@pytest.fixture(scope="module")
def seen(
    mariadb_server: MariaDbServer, tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Iterator[dict[str, bytes]]:
    """Everything that could be read while the flow ran and afterwards: where → the bytes."""
    directory = tmp_path_factory.mktemp("canary")
    port = free_port()
    config = configuration(directory, mariadb_server, port)
    # The hash: a server may write the statement into its binlog, which capture copies.
    hashed = hashlib.sha1(hashlib.sha1(environment["CANARY_PASSWORD"].encode()).digest()).hexdigest().upper()
    connection = mariadb_server.connect()
    with connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE OR REPLACE USER canary@'%' IDENTIFIED BY PASSWORD '*{hashed}'")
        cursor.execute("GRANT ALL ON *.* TO canary@'%'")
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"CREATE TABLE {DATABASE}.t (id int primary key)")
        seen: dict[str, bytes] = {}

        def command(*arguments: str) -> None:
            done = subprocess.run(
                [*PENSTOCK, *arguments, "-c", str(config)],
                capture_output=True,
                env=environment,
                timeout=2 * LIMIT_SECONDS,
                check=False,
            )
            seen[" ".join(arguments)] = done.stdout + done.stderr

        with (directory / "run.err").open("wb") as errors:
            run = subprocess.Popen(
                [*PENSTOCK, "--log-level", "debug", "run", "-c", str(config), "--json"],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        assert run.stdout is not None
        events: list[dict[str, Any]] = []
        lines: list[bytes] = []

        def read(stream: Any = run.stdout) -> None:
            for line in stream:
                lines.append(line)
                events.append(json.loads(line))

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        watch = Watch(run.pid)
        try:

            def still_runs() -> None:
                if run.poll() is not None:
                    raise AssertionError(f"the run ended: {events[-1]} {(directory / 'run.err').read_text()[-2000:]}")

            def is_up() -> bool:
                still_runs()
                return any((e.get("source") or {}).get("position") for e in events)

            wait_until(is_up, "capture that follows", seconds=2 * LIMIT_SECONDS)
            cursor.execute(f"INSERT INTO {DATABASE}.t VALUES (1), (2), (3)")
            wait_until(
                lambda: any(e.get("rows", 0) >= 3 for e in events) or run.poll() is not None,
                "rows at the sink",
                lambda: str(events[-1:]),
                seconds=2 * LIMIT_SECONDS,
            )
            still_runs()
            command("status", "--json")
            command("status")
            application = json.loads(page(port, "api/v1/applications"))[0]["id"]
            seen["Spark's page"] = page(port, "environment/")
            seen["Spark's answer"] = page(port, f"api/v1/applications/{application}/environment")
            seen |= files_below(directory, "while it runs ")
            seen |= files_below(Path(environment["TMPDIR"]), "temporary ")
        finally:
            watch.end()
            run.send_signal(signal.SIGINT)
            try:
                run.wait(2 * LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                run.kill()
        reading.join(LIMIT_SECONDS)
    for arguments in (("check",), ("check", "--json"), ("verify", "--json"), ("verify",)):
        command(*arguments)
    with mariadb_server.connect() as other, other.cursor() as cursor:
        cursor.execute("ALTER USER canary@'%' IDENTIFIED BY 'another'")
    command("run", "--once")
    command("run", "--once", "--json")
    seen["run"] = b"".join(lines)
    seen["arguments"] = b"\n".join(watch.arguments)
    seen["environments"] = b"\n".join(watch.environments)
    yield seen | files_below(directory, "at the end ")


def page(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=LIMIT_SECONDS) as answer:
        return bytes(answer.read())


def files_below(directory: Path, prefix: str) -> dict[str, bytes]:
    found = {}
    for path in directory.rglob("*"):
        if path.is_file() and path.name != "penstock.yaml":
            found[f"{prefix}{path.relative_to(directory)}"] = path.read_bytes()
    return found


def test_the_canary_is_nowhere(seen: dict[str, bytes]) -> None:
    found = {
        where: text[max(0, text.index(CANARY.encode()) - 80) :][:200]
        for where, text in seen.items()
        if CANARY.encode() in text
    }
    assert not found


def test_the_search_sees_what_it_should(seen: dict[str, bytes], environment: dict[str, str]) -> None:
    """The search itself: it saw the JVM, the children, Spark's files, and pages that name the settings."""
    assert b"org.apache.spark.deploy.SparkSubmit" in seen["arguments"]
    assert b"penstock.delivery" in seen["arguments"]
    assert b"PENSTOCK_LOG_LEVEL=debug" in seen["environments"]
    assert any(where.startswith("while it runs events") for where in seen)
    assert b"spark.hadoop.fs.s3a.secret.key" in seen["Spark's answer"]
    assert b"<html" in seen["Spark's page"]
    assert any(b"spark.hadoop.fs.s3a.secret.key" in text for where, text in seen.items() if "events" in where)
    assert b"spark.hadoop.fs.s3a.secret.key" in seen["check"] or b"hadoop.fs.s3a.secret.key" in seen["check"]
    assert b'"rows"' in seen["run"]
    assert b"denied" in seen["run --once"], "the wrong password was told"


def test_the_file_for_spark_is_gone(seen: dict[str, bytes]) -> None:
    assert not [where for where in seen if where.endswith("session.properties")]


def test_watching_is_quick() -> None:
    watch = Watch(os.getpid())
    time.sleep(0.5)
    watch.end()
    assert any(b"pytest" in text for text in watch.arguments)
