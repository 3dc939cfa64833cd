"""A private MariaDB server, from Debian's packages.

    python tools/components/mariadb.py start DIRECTORY [--port N]     prints how to reach it, as JSON
    python tools/components/mariadb.py stop DIRECTORY
    python tools/components/mariadb.py install                        the Debian package, without its service

As a library: `MariaDbServer(directory).start()`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # run as a script: make `tools` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tools.components import MissingComponent, apt_install, may_install
from tools.components.database import PASSWORD, USER, DatabaseServer, main, run_quietly

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
    """Installs Debian's packages where they are missing; they carry no service, and nothing is started."""
    if _look() is None:
        apt_install(*_PACKAGES)


def _look() -> tuple[Path, Path] | None:
    server = shutil.which("mariadbd", path=_SEARCH_PATH)
    installer = shutil.which("mariadb-install-db", path=_SEARCH_PATH)
    return (Path(server), Path(installer)) if server and installer else None


class MariaDbServer(DatabaseServer):
    kind = "mariadb"

    def _program(self) -> list[str]:
        server, _ = find_mariadbd()
        return [str(server), f"--init-file={self.directory / 'init.sql'}", "--gtid-strict-mode=ON"]

    def _initialise(self, user: Sequence[str]) -> None:
        _, installer = find_mariadbd()
        run_quietly(
            [str(installer), "--no-defaults", *user, f"--datadir={self.binlog_directory}", "--skip-test-db",
             "--auth-root-authentication-method=normal", "--skip-name-resolve", f"--tmpdir={self.directory}",
             "--innodb-log-file-size=64M"]
        )  # fmt: skip
        (self.directory / "init.sql").write_text(
            "SET sql_log_bin = 0;\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        )


if __name__ == "__main__":
    sys.exit(main(MariaDbServer, install))
