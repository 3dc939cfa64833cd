"""What a private MariaDB and a private MySQL have in common: their own data directory, port and socket, and how they start,
answer and end. No system service is started or touched.

`start()` returns once the server answers; `stop()` ends it cleanly, `kill()` with SIGKILL, and another `start()` goes on
with the same data on the same port.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import grp
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import pymysql

from tools.components import MissingComponent, free_port

USER = "penstock"
PASSWORD = "penstock-test"  # a server on the loopback address that lives as long as a test
_READY_SECONDS_MAX = 60.0
_STOP_SECONDS_MAX = 60.0
_TEMPLATES: dict[tuple[str, ...], Path] = {}  # by kind and user: data directories as a new server has them


class DatabaseServer(ABC):
    """One server. Its binlog has row events with full images and metadata, and GTIDs."""

    kind: ClassVar[str]

    def __init__(
        self, directory: Path, port: int | None = None, *, server_id: int = 1, options: Sequence[str] = ()
    ) -> None:
        self.directory = directory.resolve()
        self.host = "127.0.0.1"
        self.port = port or free_port()
        self.socket = self.directory / f"{self.kind}.sock"
        self.user = USER
        self.password = PASSWORD
        self.binlog_directory = self.directory / "data"
        self._server_id = server_id
        self._options = tuple(options)
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _program(self) -> list[str]:
        """The program with the options of its kind. Raises `MissingComponent`."""

    @abstractmethod
    def _initialise(self, user: Sequence[str]) -> None:
        """Makes the data directory. `user`: the option for whom the server runs as."""

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def start(self) -> Self:
        """Returns once the server answers. Makes the data directory where there is none."""
        program, *options = self._program()
        self.directory.mkdir(parents=True, exist_ok=True)
        user = self._run_as()
        if not (self.binlog_directory / "mysql").exists():
            self._make_data(user)
        log = (self.directory / f"{self.kind}.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [
                    program, "--no-defaults", *user, f"--datadir={self.binlog_directory}", f"--socket={self.socket}",
                    f"--port={self.port}", "--bind-address=127.0.0.1", f"--pid-file={self.directory / 'server.pid'}",
                    f"--tmpdir={self.directory}", "--skip-name-resolve", "--skip-slave-start",
                    "--character-set-server=utf8mb4", f"--server-id={self._server_id}", "--log-bin=binlog",
                    "--binlog-format=ROW", "--binlog-row-image=FULL", "--binlog-row-metadata=FULL", "--log-slave-updates",
                    "--max-allowed-packet=256M",
                    # Tests kill the process, never the machine, so its writes need no syncs.
                    "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=64M",
                    *options, *self._options,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._wait_until_ready()
        return self

    def _make_data(self, user: Sequence[str]) -> None:
        """To make a data directory takes seconds, so this process makes one of each kind and copies it. Its files belong to
        the user that the server runs as."""
        template = (self.kind, *user)
        kept = _TEMPLATES.get(template)
        if kept is None:
            self._initialise(user)
            kept = Path(tempfile.mkdtemp(prefix=f"penstock-{self.kind}-"))
            atexit.register(shutil.rmtree, kept, ignore_errors=True)
            _copy(self.binlog_directory, kept / "data")
            _copy(self.directory / "init.sql", kept / "init.sql")
            _TEMPLATES[template] = kept
        else:
            _copy(kept / "data", self.binlog_directory)
            _copy(kept / "init.sql", self.directory / "init.sql")
            (self.binlog_directory / "auto.cnf").unlink(missing_ok=True)  # MySQL's identity: of one server alone

    def stop(self) -> None:
        """Ends the server cleanly; fine if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def connect(self, database: str | None = None, *, autocommit: bool = True) -> pymysql.connections.Connection[Any]:
        """A connection with all rights; the caller closes it."""
        return pymysql.connect(
            host=self.host, port=self.port, user=self.user, password=self.password, database=database,
            autocommit=autocommit, charset="utf8mb4", connect_timeout=10,
        )  # fmt: skip

    def address(self) -> dict[str, Any]:
        """How to reach it, as plain data."""
        return {
            "host": self.host, "port": self.port, "socket": str(self.socket), "user": self.user,
            "password": self.password, "pid": self.pid,
        }  # fmt: skip

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run_as(self) -> list[str]:
        """The `--user` that a server wants from root: an unprivileged user, if that user can reach the directory; else
        root."""
        if os.geteuid() != 0:
            return []
        for name in ("mysql", "nobody"):
            with contextlib.suppress(KeyError):
                user = pwd.getpwnam(name)
                if all(parent.stat().st_mode & 0o001 for parent in self.directory.parents):
                    shutil.chown(self.directory, user.pw_uid, grp.getgrgid(user.pw_gid).gr_gid)
                    return [f"--user={name}"]
        return ["--user=root"]

    def _wait_until_ready(self) -> None:
        process = self._process
        assert process is not None
        deadline = time.monotonic() + _READY_SECONDS_MAX
        while True:
            try:
                self.connect().close()
                return
            except pymysql.err.MySQLError as error:
                if process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                self.kill()
                log = (self.directory / f"{self.kind}.log").read_text(errors="replace")
                raise RuntimeError(f"{self.kind} did not start: {error}\n{log[-3000:]}") from error

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def _copy(source: Path, target: Path) -> None:
    """With the owner, who may be the user that the server runs as."""
    run_quietly(["cp", "-a", "--reflink=auto", "--sparse=always", str(source), str(target)])


def run_quietly(command: Sequence[str]) -> None:
    """Runs a program to its end; what it said is in the error where it failed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def main(server: type[DatabaseServer], install: Callable[[], object]) -> int:
    """The command line of both: install, start, stop."""
    parser = argparse.ArgumentParser(description=f"A private server: {server.kind}.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install")
    start = commands.add_parser("start")
    start.add_argument("directory", type=Path)
    start.add_argument("--port", type=int, default=None)
    stop = commands.add_parser("stop")
    stop.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    try:
        if arguments.command == "install":
            install()
        elif arguments.command == "stop":
            _stop_pid(arguments.directory)
        else:
            text = json.dumps(server(arguments.directory, arguments.port).start().address(), indent=2)
            (arguments.directory / "server.json").write_text(text)
            print(text)
    except MissingComponent as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _stop_pid(directory: Path) -> None:
    path = directory / "server.json"
    pid = json.loads(path.read_text())["pid"]
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS_MAX
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.05)
    path.unlink()
