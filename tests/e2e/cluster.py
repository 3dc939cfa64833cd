"""A Spark cluster on this machine: a master and workers from the pyspark package, on ports of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.files.private import make_private_directory
from penstock.spark.jvm.installed import spark_home
from penstock.spark.jvm.java import find_java_home
from penstock.supervisor.child import bound
from tests.support.waiting import wait_until

HOST = "127.0.0.1"
_SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


class Cluster:
    """Each process leads a group of its own, so that an executor dies with its worker, as on a host that goes."""

    def __init__(self, directory: Path, workers: int) -> None:
        self._directory = directory
        make_private_directory(directory)
        self._environment = {
            **os.environ,
            "JAVA_HOME": str(find_java_home(directory)),
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "SPARK_DAEMON_JAVA_OPTS": _SMALL,
            "SPARK_DAEMON_MEMORY": "192m",
            "PYSPARK_PYTHON": sys.executable,
        }
        port = _free_port()
        self.url = f"spark://{HOST}:{port}"
        self.master = self._start("master", "master.Master", "--port", str(port))
        self.workers: list[subprocess.Popen[bytes]] = []
        self._wait(lambda: _answers(port), "the master")
        for number in range(workers):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{number}"))
            self.workers.append(self._start(f"worker-{number}", "worker.Worker", *work, self.url))
        self._wait(lambda: self.said().count("Successfully registered") >= workers, "workers")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            assert all(one.poll() is None for one in (self.master, *self.workers)), self.said()
            return condition()

        try:
            wait_until(met, what, self.said)
        except BaseException:
            self.close()
            raise

    def said(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._directory.glob("*.log")))

    def executors(self) -> set[int]:
        """The executors that run now, by process id."""
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    line = (entry / "cmdline").read_text()
                    if "CoarseGrainedExecutorBackend" in line and str(self._directory) in str(
                        (entry / "cwd").readlink()
                    ):
                        found.add(int(entry.name))
        return found

    @staticmethod
    def kill(process: subprocess.Popen[bytes]) -> None:
        """kill -9 of a worker and of what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in (*self.workers, self.master):
            self.kill(process)

    def _start(self, name: str, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}"]
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                bound([*command, "--host", HOST, "--webui-port", "0", *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )


@contextlib.contextmanager
def a_cluster(directory: Path, workers: int) -> Iterator[Cluster]:
    cluster = Cluster(directory, workers)
    try:
        yield cluster
    finally:
        cluster.close()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False
