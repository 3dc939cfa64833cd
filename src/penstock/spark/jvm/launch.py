"""Starts Spark's JVM and the context in it.

The JVM takes seconds, and so do the imports of the process that wants it. So it is started first, by what Python alone
can do, and `Launch.context` is asked for once everything else is there. PySpark would start the JVM only after its own
imports; it connects to ours instead, in the way that it has for a gateway which runs already.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import Unavailable
from penstock.files.private import write_private
from penstock.spark.jvm.context import DAEMON_MODULE, Scratch, log4j_text, spark_settings
from penstock.spark.jvm.installed import pyspark_version, spark_home
from penstock.spark.jvm.java import find_java_home, properties_file, properties_text
from penstock.spark.jvm.workers_ahead import WorkersAhead

if TYPE_CHECKING:
    from pyspark import SparkContext

_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_SHELL = "pyspark-shell"  # what PySpark starts where the variable is not set
_GATEWAY_PORT, _GATEWAY_SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_LOOK_SECONDS = 0.02
_LENGTH = struct.Struct(">i")


class Launch:
    """A JVM of this process, from its first moment on. There is at most one at a time: pyspark knows no more.

    The JVM inherits this process's standard output and error; in the driver process both lead to standard error. It ends
    with this process. With `workers_ahead`, the process that its workers are forked from begins at the same time.
    """

    def __init__(
        self,
        state_dir: Path,
        own: Mapping[str, str] | None = None,
        *,
        java_options: Iterable[str] = (),
        workers_ahead: bool = False,
    ) -> None:
        home = spark_home()
        pyspark = sys.modules.get("pyspark")
        if pyspark is not None and pyspark.SparkContext._gateway is not None:
            raise RuntimeError("a JVM of this process runs already, and has read other settings than ours")
        self._scratch = scratch = Scratch(state_dir)
        write_private(scratch.root / "log4j2.properties", log4j_text(scratch.log))
        _prepare_environment(scratch, home)
        self._connection = scratch.temporary / "connection"
        settings = spark_settings(scratch, own, java_options)
        self._open = contextlib.ExitStack()
        self.process: subprocess.Popen[bytes] | None = None
        self._workers: WorkersAhead | None = None
        try:
            if workers_ahead and _forks_our_workers_here(settings):
                self._workers = WorkersAhead(scratch.sockets)
            text = properties_text(settings)
            if not (defaults := _loads_defaults()):
                text = _defaults_text(home) + text  # of one key twice the last one counts
            name = self._open.enter_context(properties_file(scratch.root / "session.properties", text))
            with scratch.for_temporary_files():
                self.process = subprocess.Popen(
                    [home / "bin" / "spark-submit", *_arguments(name, with_defaults=defaults)],
                    stdin=subprocess.PIPE,  # its end is the JVM's
                    env={
                        **os.environ,
                        "SPARK_CONNECT_MODE": "0",
                        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
                        **(self._workers.environment if self._workers is not None else {}),
                    },
                )
                if self._workers is not None:
                    self._workers.start()
        except OSError as error:
            self._open.close()
            raise self._failed(error) from error

    def context(self) -> SparkContext:
        """The context, once the JVM is there. Raises `Unavailable` where it did not come up."""
        assert self.process is not None
        try:
            import pyspark

            with self._open, self._scratch.for_temporary_files():
                os.environ[_GATEWAY_PORT], os.environ[_GATEWAY_SECRET] = self._await_connection()
                try:
                    context = pyspark.SparkContext.getOrCreate()
                finally:
                    del os.environ[_GATEWAY_PORT], os.environ[_GATEWAY_SECRET]
            gateway: Any = context._gateway
            gateway.proc = self.process  # as if pyspark had started it
            return context
        except Exception as error:
            self.end()
            raise self._failed(error) from error

    def end(self) -> None:
        """Kills the JVM. For a launch that is not wanted any more."""
        self._open.close()
        if self._workers is not None:
            self._workers.end()
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _await_connection(self) -> tuple[str, str]:
        assert self.process is not None
        while not self._connection.exists():
            if (code := self.process.poll()) is not None:
                raise RuntimeError(f"Java ended with exit code {code}")
            time.sleep(_LOOK_SECONDS)
        data = self._connection.read_bytes()
        self._connection.unlink()
        (port,), (size,) = _LENGTH.unpack_from(data, 0), _LENGTH.unpack_from(data, 4)
        return str(port), data[8 : 8 + size].decode()

    def _failed(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"Spark did not start: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            hint=f"its log is {self._scratch.log}",
        )


def start_context(state_dir: Path, own: Mapping[str, str] | None = None) -> SparkContext:
    """The context of this process. Takes seconds."""
    return Launch(state_dir, own).context()


def _forks_our_workers_here(settings: Mapping[str, str]) -> bool:
    """Whether it is this machine's and this Python's process that Spark's workers are forked from."""
    ours = settings["spark.python.daemon.module"] == DAEMON_MODULE
    others = {"spark.pyspark.python", "spark.pyspark.driver.python"} & settings.keys()
    return settings["spark.master"].startswith("local") and ours and not others


def _prepare_environment(scratch: Scratch, home: Path) -> None:
    """Of this process and of all that it starts."""
    os.environ["JAVA_HOME"] = str(find_java_home(scratch.root))
    os.environ.pop("SPARK_LOCAL_DIRS", None)  # where it is set, Spark does not heed `spark.local.dir`
    # Of the small JVM that finds out how to start the real one.
    os.environ["SPARK_LAUNCHER_OPTS"] = "-XX:-UsePerfData -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not str(scratch.root).isascii():
        os.environ["LC_ALL"] = "C.UTF-8"  # in another locale Java would write to a path that only looks alike
    # With a SPARK_HOME that points at another Spark, that one would be started, and fail in obscure ways.
    os.environ["SPARK_HOME"] = str(home)


def _loads_defaults() -> bool:
    """Whether Spark takes `--load-spark-defaults`. Without it a spark-defaults.conf of the user's does not count where
    there is a file of settings."""
    return (pyspark_version() or (4, 0)) >= (4, 0)


def _defaults_text(home: Path) -> str:
    directory = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    try:
        return (directory / "spark-defaults.conf").read_text() + "\n"
    except OSError:
        return ""


def _arguments(properties: Path, *, with_defaults: bool) -> list[str]:
    """Those of spark-submit: ours, and what the user's variable says."""
    users = shlex.split(os.environ.get(_SUBMIT_ARGUMENTS) or _SHELL)
    return ["--properties-file", str(properties), *(["--load-spark-defaults"] if with_defaults else []), *users]
