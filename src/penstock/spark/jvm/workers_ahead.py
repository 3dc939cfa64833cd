"""The workers' parent, started beside the JVM instead of after it.

Spark starts the process that its Python workers are forked from (daemon.py) when it has its first task, and then waits for
the imports of that process. In a driver with a local master they are done meanwhile, by a process of the same program
that waits to be taken:

1. The driver makes a socket in its private directory, names it to the JVM in the environment, and starts that process
   with it (`WorkersAhead`).
2. What Spark starts is `daemon.py` as ever. It finds the name and hands over what Spark gave to it: standard input,
   output and error, the environment and the path of modules (`hand_over`). Then it only stays, as the process that Spark
   knows, until the other one ends, and passes a SIGTERM on.
3. The process that waited takes all that for its own and goes on as the workers' parent (`wait_to_be_taken`).

It is taken once. Where nobody waits, where another Python would wait, and when Spark starts a second parent after the first
one died, `hand_over` is False, and the imports come as they would without all this.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

VARIABLE = "PENSTOCK_WORKERS_AHEAD"
AHEAD = "--ahead"
_WORKER_MODULE = "pyspark.worker"
_SOCKET_NAME = "workers"
_STANDARD = (0, 1, 2)
_LENGTH = struct.Struct("<I")
_CREDENTIALS = struct.Struct("3i")  # process, user and group of the peer
_PIPE_BYTES = 1 << 16


class WorkersAhead:
    """The process, seen from the driver. `directory`: a private one, by a name that is short enough for a socket in it."""

    def __init__(self, directory: Path) -> None:
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address = str(directory / _SOCKET_NAME)
        self._listening.bind(address)
        self._listening.listen(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {VARIABLE: address}  # for the JVM

    def start(self) -> None:
        number = self._listening.fileno()
        with contextlib.suppress(OSError), self._listening:  # without it, Spark's own process does all of it
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.spark.daemon", _WORKER_MODULE, AHEAD, str(number), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=(number,),
                env={**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")},  # as Spark's own have it
            )

    def end(self) -> None:
        """Kills it. For a launch that is not wanted any more."""
        self._listening.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def hand_over(environment: Mapping[str, str] = os.environ) -> bool:
    """Hands this process's place to the one that waits, and returns once that one has ended; False where none took it."""
    address = environment.get(VARIABLE)
    if not address or sys.argv[1:] != [_WORKER_MODULE]:
        return False
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # one that comes too early is passed on later
    try:
        return _hand_over_to(address, environment)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _hand_over_to(address: str, environment: Mapping[str, str]) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(address)
            text = json.dumps([sys.executable, sys.version, sys.path, dict(environment)]).encode()
            socket.send_fds(connection, [_LENGTH.pack(len(text))], _STANDARD)
            connection.sendall(text)
            answer = _receive(connection, _LENGTH.size)
        except OSError:
            return False
        if len(answer) < _LENGTH.size:
            return False
        (successor,) = _LENGTH.unpack(answer)

        def pass_on(number: int, _frame: FrameType | None) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(successor, number)

        signal.signal(signal.SIGTERM, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in _STANDARD:
            os.dup2(nothing, number)
        _receive(connection, 1)
    return True


def wait_to_be_taken(listening: int) -> None:
    """Returns once this process has the place of the one that Spark started. Ends this process where it does not fit."""
    from penstock.process import stay_after_parent

    with socket.socket(fileno=listening) as server:
        address = server.getsockname()
        connection, _ = server.accept()
    os.unlink(address)  # noqa: PTH108 (taken once)
    if _user(connection) not in {None, os.geteuid()}:
        os._exit(1)
    head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, len(_STANDARD))
    (length,) = _LENGTH.unpack(head)
    executable, version, path, environment = json.loads(_receive(connection, length))
    if (executable, version) != (sys.executable, sys.version):
        os._exit(0)
    sys.stdout.flush()
    sys.stderr.flush()
    for number, descriptor in zip(_STANDARD, descriptors, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    stay_after_parent()  # from here on it ends as Spark's own does: with the JVM, and its workers before it
    connection.sendall(_LENGTH.pack(os.getpid()))
    connection.detach()  # open until this process ends, which is how the other one sees it


def _receive(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer where the other side has ended."""
    data = b""
    while len(data) < size and (more := connection.recv(min(size - len(data), _PIPE_BYTES))):
        data += more
    return data


def _user(connection: socket.socket) -> int | None:
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])
