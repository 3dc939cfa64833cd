"""Real servers for tests and benchmarks, one small file each, on private ports and directories.

A component that is missing is installed only if that was asked for (`CI=true` or `PENSTOCK_INSTALL=1`). Otherwise
nothing on the machine is changed, and `MissingComponent` says what is missing and how to get it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
CACHE = REPOSITORY / ".cache"


class MissingComponent(Exception):
    """A real component is not on this machine. The message says how to get it."""


def may_install() -> bool:
    """True if installing packages on this machine was asked for, and is possible."""
    wanted = os.environ.get("CI") == "true" or os.environ.get("PENSTOCK_INSTALL") == "1"
    return wanted and os.geteuid() == 0


def apt_install(*packages: str) -> None:
    """Installs Debian packages. Downloads stay in `.cache/apt`. Raises `MissingComponent`."""
    archives = CACHE / "apt"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", f"-oDir::Cache::archives={archives}",
         "-oAPT::Keep-Downloaded-Packages=true", "-oAPT::Sandbox::User=root", *packages],
    ):  # fmt: skip
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingComponent(f"{' '.join(command[:2])} failed: {done.stderr.strip() or done.stdout.strip()}")


def free_port() -> int:
    """A TCP port of the loopback address that was free a moment ago."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Several such ports, all different."""
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in sockets]
