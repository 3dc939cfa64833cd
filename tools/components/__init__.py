"""Real servers for tests and benchmarks, one small file each, on private ports and directories.

A component that is not there is fetched where that is asked for (`CI=true` or `PENSTOCK_INSTALL=1`); elsewhere nothing on
the machine is changed, and `MissingComponent` says what is missing and how to get it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
CACHE = REPOSITORY / ".cache"


class MissingComponent(Exception):
    """A real component is not on this machine. The message says how to get it."""


def may_install() -> bool:
    """Whether this machine is ours to install packages on."""
    wanted = os.environ.get("CI") == "true" or os.environ.get("PENSTOCK_INSTALL") == "1"
    return wanted and os.geteuid() == 0


def free_port() -> int:
    """A TCP port of the loopback address that was free a moment ago."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many of them, none twice."""
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in sockets]
