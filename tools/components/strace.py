"""strace, which lets a test fail any system call of a real process."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tools.components import CACHE, MissingComponent, may_install


def find_strace() -> Path:
    """The program; installs Debian's package where that is allowed. Raises `MissingComponent`."""
    found = shutil.which("strace")
    if found is None and may_install():
        install()
        found = shutil.which("strace")
    if found is None:
        raise MissingComponent(
            "strace is not on this machine: install your system's package (Debian, Ubuntu: apt-get install strace), or set "
            "PENSTOCK_INSTALL=1 and run as root"
        )
    return Path(found)


def install() -> None:
    archives = CACHE / "apt"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", f"-oDir::Cache::archives={archives}",
         "-oAPT::Sandbox::User=root", "strace"],
    ):  # fmt: skip
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingComponent(f"{' '.join(command[:2])} failed: {done.stderr.strip() or done.stdout.strip()}")
