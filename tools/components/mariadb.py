"""A private MariaDB server: its own data directory, port and socket; no system service is started or touched.

    python tools/components/mariadb.py start DIRECTORY [--port N]     prints how to reach it, as JSON
    python tools/components/mariadb.py stop DIRECTORY
    python tools/components/mariadb.py install                        the Debian package, without its service

As a library: `MariaDbServer(directory).start()`; `stop()` ends it cleanly, `kill()` with SIGKILL, and another `start()`
goes on with the same data on the same port.
"""

from __future__ import annotations

import argparse
import contextlib
import grp
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run as a script: make `tools` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import pymysql

from tools.components import MissingComponent, apt_install, free_port, may_install

USER = "penstock"
PASSWORD = "penstock-test"  # a server on the loopback address that lives as long as a test
_READY_SECONDS_MAX = 60.0
_STOP_SECONDS_MAX = 60.0
# The package with the server alone: no service, no system user, no configuration.
_PACKAGES = ("mariadb-server-core", "mariadb-client-core")
_SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/usr/bin"])


def find_mariadbd() -> tuple[Path, Path]:
    """`mariadbd` and `mariadb-install-db`; installs them where that is allowed. Raises `MissingComponent`."""
    found = _look()
    if found is None and may_install():
        install()
        found = _look()
    if found is None:
        raise MissingComponent(
            "MariaDB's server is not on this machine: install your system's package (Debian, Ubuntu: apt-get install "
            "mariadb-server-core), or set PENSTOCK_INSTALL=1 and run as root; it need not run as a service"
        )
    return found


def install() -> None:
    """Installs Debian's packages, which carry no service; nothing is started."""
    apt_install(*_PACKAGES)


def _look() -> tuple[Path, Path] | None:
    server = shutil.which("mariadbd", path=_SEARCH_PATH)
    installer = shutil.which("mariadb-install-db", path=_SEARCH_PATH)
    return (Path(server), Path(installer)) if server and installer else None


class MariaDbServer:
    """One server. Its binlog has row events with full images and metadata, and GTIDs."""

    def __init__(
        self, directory: Path, port: int | None = None, *, server_id: int = 1, options: Sequence[str] = ()
    ) -> None:
        self.directory = directory.resolve()
        self.host = "127.0.0.1"
        self.port = port or free_port()
        self.socket = self.directory / "mariadb.sock"
        self.user = USER
        self.password = PASSWORD
        self.binlog_directory = self.directory / "data"
        self._server_id = server_id
        self._options = tuple(options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def start(self) -> MariaDbServer:
        """Returns once the server answers. Makes the data directory where there is none."""
        server, installer = find_mariadbd()
        self.directory.mkdir(parents=True, exist_ok=True)
        user = self._run_as()
        if not (self.binlog_directory / "mysql").exists():
            self._initialise(installer, user)
        log = (self.directory / "mariadb.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [
                    str(server), "--no-defaults", *user, f"--datadir={self.binlog_directory}", f"--socket={self.socket}",
                    f"--port={self.port}", "--bind-address=127.0.0.1", f"--pid-file={self.directory / 'mariadb.pid'}",
                    f"--init-file={self.directory / 'init.sql'}", f"--tmpdir={self.directory}",
                    "--skip-name-resolve", "--skip-slave-start", "--character-set-server=utf8mb4",
                    f"--server-id={self._server_id}", "--log-bin=binlog", "--binlog-format=ROW",
                    "--binlog-row-image=FULL", "--binlog-row-metadata=FULL", "--log-slave-updates",
                    "--gtid-strict-mode=ON", "--max-allowed-packet=256M",
                    # Tests kill the process, never the machine, so its writes need no syncs.
                    "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=64M",
                    *self._options,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._wait_until_ready()
        return self

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

    def __enter__(self) -> MariaDbServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run_as(self) -> list[str]:
        """The `--user` that mariadbd wants from root: an unprivileged user, if that user can reach the directory; else
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

    def _initialise(self, installer: Path, user: Sequence[str]) -> None:
        done = subprocess.run(
            [str(installer), "--no-defaults", *user, f"--datadir={self.binlog_directory}", "--skip-test-db",
             "--auth-root-authentication-method=normal", "--skip-name-resolve", f"--tmpdir={self.directory}",
             "--innodb-log-file-size=64M"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"mariadb-install-db failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        (self.directory / "init.sql").write_text(
            "SET sql_log_bin = 0;\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        )

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
                log = (self.directory / "mariadb.log").read_text(errors="replace")
                raise RuntimeError(f"MariaDB did not start: {error}\n{log[-3000:]}") from error

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


def main() -> int:
    parser = argparse.ArgumentParser(description="A private MariaDB server.")
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
            if _look() is None:
                install()
        elif arguments.command == "stop":
            _stop_pid(arguments.directory)
        else:
            server = MariaDbServer(arguments.directory, arguments.port).start()
            text = json.dumps(server.address(), indent=2)
            (arguments.directory / "server.json").write_text(text)
            print(text)
    except MissingComponent as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
