"""Other people's decoders of binlogs, to compare with: `mariadb-binlog`, and python-mysql-replication.

    python tools/components/decoders.py install        both, into .cache, where they are missing

Neither is installed on the system: the first is taken out of Debian's package, the second lives in an environment of its
own, so that nothing of it is ever imported by Penstock.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # run as a script: make `tools` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tools.components import CACHE, MissingComponent, may_install

_PACKAGE = "mariadb-client"
_PROGRAM = CACHE / _PACKAGE / "usr" / "bin" / "mariadb-binlog"
_REPLICATION = "mysql-replication==1.0.17"
_ENVIRONMENT = CACHE / "mysql-replication"
_PYTHON = _ENVIRONMENT / "bin" / "python"
_HINT = "python tools/components/decoders.py install brings it into .cache"


def find_mariadb_binlog() -> Path:
    """The program; brings it where that is allowed. Raises `MissingComponent`."""
    if _program() is None and may_install():
        _install_program()
    found = _program()
    if found is None:
        raise MissingComponent(f"mariadb-binlog is not here: {_HINT} (from Debian's package {_PACKAGE})")
    return found


def find_python_with_mysql_replication() -> Path:
    """A Python that has the package; makes it where that is allowed. Raises `MissingComponent`."""
    if not _PYTHON.exists() and may_install():
        _install_replication()
    if not _PYTHON.exists():
        raise MissingComponent(f"python-mysql-replication is not here: {_HINT}")
    return _PYTHON


def install() -> None:
    if _program() is None:
        _install_program()
    if not _PYTHON.exists():
        _install_replication()


def _program() -> Path | None:
    found = shutil.which("mariadb-binlog")
    return Path(found) if found else _PROGRAM if _PROGRAM.exists() else None


def _install_program() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        _run(["apt-get", "update", "-qq"], Path(scratch))
        _run(["apt-get", "download", "-oAPT::Sandbox::User=root", _PACKAGE], Path(scratch))
        _run(["dpkg", "-x", *(str(deb) for deb in Path(scratch).glob("*.deb")), str(CACHE / _PACKAGE)], Path(scratch))


def _install_replication() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=CACHE))
    python = str(scratch / "bin" / "python")
    uv = shutil.which("uv") or shutil.which("uv", path=str(CACHE / "uv" / "bin"))
    if uv is not None:
        _run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(scratch)], CACHE)
        _run([uv, "pip", "install", "--quiet", "--python", python, _REPLICATION], CACHE)
    else:
        _run([sys.executable, "-m", "venv", str(scratch)], CACHE)
        _run([python, "-m", "pip", "install", "--quiet", _REPLICATION], CACHE)
    try:
        scratch.rename(_ENVIRONMENT)
    except OSError:  # another process was faster
        shutil.rmtree(scratch)


def _run(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingComponent(f"{command[0]} failed: {done.stderr[-500:]}")


if __name__ == "__main__":
    install()
