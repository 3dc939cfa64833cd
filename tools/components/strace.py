"""strace, which lets a test fail any system call of a real process."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.components import MissingComponent, apt_install, may_install


def find_strace() -> Path:
    """The program; installs Debian's package where that is allowed. Raises `MissingComponent`."""
    found = shutil.which("strace")
    if found is None and may_install():
        apt_install("strace")
        found = shutil.which("strace")
    if found is None:
        raise MissingComponent(
            "strace is not on this machine: install your system's package (Debian, Ubuntu: apt-get install strace), or set "
            "PENSTOCK_INSTALL=1 and run as root"
        )
    return Path(found)
