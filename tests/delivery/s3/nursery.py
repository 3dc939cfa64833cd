"""Starts delivery processes fast: one process imports everything once, and each real one is a fork of it.

Starting Python and loading delivery takes most of a second, which 50 kills would pay 50 times. A fork is a process like any
other: it has its own sockets, threads and death.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from penstock.wire import Client, socket_path
from tests.support.waiting import LIMIT_SECONDS

ROOT = Path(__file__).parents[3]
_MESSAGE_BYTES_MAX = 1 << 20


class Born:
    """A delivery process. `said` is the first event that it said."""

    def __init__(self, pid: int, stdin: IO[str], stdout: IO[str], state_dir: Path) -> None:
        self.pid = pid
        self.stdin, self._stdout = stdin, stdout
        self.said = self.hear()
        self.client = Client(socket_path(state_dir / "run", "delivery"), timeout_seconds=LIMIT_SECONDS)

    def hear(self) -> dict[str, Any]:
        return dict(json.loads(self._stdout.readline() or "{}"))

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Returns once it is dead: the end of its standard output says so."""
        if not self._stdout.closed:
            self.signal(signal.SIGKILL)
            while self._stdout.readline():
                pass
            self._stdout.close()
            self.stdin.close()
            self.client.close()

    def memory_high_bytes(self) -> int:
        """The most that it ever had in memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) << 10


class Nursery:
    def __init__(self, talk: socket.socket) -> None:
        self._talk = talk

    def start(self, settings: dict[str, Any]) -> Born:
        """With the environment of now."""
        ours_in, stdin = os.pipe()
        stdout, ours_out = os.pipe()
        socket.send_fds(self._talk, [json.dumps(dict(os.environ)).encode()], [ours_in, ours_out])
        os.close(ours_in)
        os.close(ours_out)
        pid = int(self._talk.recv(64))
        writer = os.fdopen(stdin, "w")
        writer.write(json.dumps(settings) + "\n")
        writer.flush()
        return Born(pid, writer, os.fdopen(stdout), Path(settings["state_dir"]))


@contextlib.contextmanager
def nursery() -> Iterator[Nursery]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.delivery.s3.nursery", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            cwd=ROOT,
        )
        theirs.close()
        try:
            yield Nursery(ours)
        finally:
            ours.close()
            process.wait(LIMIT_SECONDS)


def main(descriptor: int) -> int:
    import obstore.store  # noqa: F401

    from penstock.delivery import process as delivery

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: the dead leave no zombies
    talk = socket.socket(fileno=descriptor)
    while True:
        message, descriptors, _flags, _address = socket.recv_fds(talk, _MESSAGE_BYTES_MAX, 2)
        if not message:
            return 0
        pid = os.fork()
        if pid == 0:
            talk.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.environ.update(json.loads(message))
            for number, each in enumerate(descriptors):
                os.dup2(each, number)
                os.close(each)
            os._exit(delivery.main())
        for each in descriptors:
            os.close(each)
        talk.send(str(pid).encode())


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
