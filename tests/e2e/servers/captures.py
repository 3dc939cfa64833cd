"""The capture process in tests that kill it: started as `penstock run` starts it, or forked from one that is warm.

To start a Python with its libraries takes seconds, which is most of the time of a kill. A warm process has imported them
and waits: each request forks it, and the fork runs the same `main` with the same settings on its standard input.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.supervisor.child import bound
from tests.support.waiting import LIMIT_SECONDS

SILENCE_SECONDS = 2.0  # of a forked capture: how long a connection may be silent


class Capture:
    """One capture process and what it says."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.pid = pid
        self.said: list[dict[str, Any]] = []
        self._stdin = stdin
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(stdout,), daemon=True)
        self._reader.start()

    def wait_for(self, name: str, seconds: float = LIMIT_SECONDS) -> bool:
        """Whether the process says it, before it ends and within this time."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return False
            if event is None:
                self._events.put(None)
                return False
            if event["event"] == name:
                return True

    def ask(self, request: dict[str, Any]) -> None:
        """A request, as `penstock run` passes it on; the answer is among what it says."""
        os.write(self._stdin, json.dumps(request).encode() + b"\n")

    def kill(self) -> None:
        """kill -9. Returns once the process is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self._ended()

    def stop(self) -> int:
        """Asks it to stop, as `penstock run` does. Returns its exit code."""
        os.close(self._stdin)
        self._stdin = -1
        return self._ended()

    def finish(self) -> int:
        """Waits for its own end. Returns its exit code."""
        return self._ended()

    def _ended(self) -> int:
        code = self._wait()
        self._reader.join(LIMIT_SECONDS)
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
        return code

    def _wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, stdout: int) -> None:
        with open(stdout, "rb") as lines:
            for line in lines:
                event = json.loads(line)
                self.said.append(event)
                self._events.put(event)
        self._events.put(None)


class _Fork(Capture):
    def __init__(self, warm: socket.socket, stdin: int, stdout: int) -> None:
        self._warm = warm
        super().__init__(int.from_bytes(_exactly(warm, 4), "little"), stdin, stdout)

    def _wait(self) -> int:
        return int.from_bytes(_exactly(self._warm, 4), "little", signed=True)


class Captures:
    """Starts capture processes of one state directory, one at a time."""

    def __init__(self, state_dir: Path, source: dict[str, Any]) -> None:
        self.state_dir = state_dir
        self.source = source
        self.log_file = state_dir.with_name(f"{state_dir.name}.log")
        self._warm: socket.socket | None = None
        self.last: Capture | None = None

    @contextlib.contextmanager
    def ready(self) -> Iterator[Captures]:
        """With the warm process. What still runs at the end is killed."""
        ours, theirs = socket.socketpair()
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.servers.warm_capture", str(theirs.fileno()), str(SILENCE_SECONDS)],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        theirs.close()
        self._warm = ours
        try:
            yield self
        finally:
            if self.last is not None:
                with contextlib.suppress(OSError):
                    os.kill(self.last.pid, signal.SIGKILL)
            ours.close()
            process.wait(LIMIT_SECONDS)

    def start(self, *, forked: bool = True, until_now: bool = False) -> Capture:
        settings = {"state_dir": str(self.state_dir), "source": self.source, "until": "now" if until_now else None}
        stdin, to_child = os.pipe()
        from_child, stdout = os.pipe()
        os.write(to_child, json.dumps(settings).encode() + b"\n")
        with self.log_file.open("ab") as log:
            if forked:
                assert self._warm is not None
                descriptors = array.array("i", [stdin, stdout, log.fileno()])
                self._warm.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
                self.last = _Fork(self._warm, to_child, from_child)
            else:
                process = subprocess.Popen(
                    bound((sys.executable, "-m", "penstock.capture")),
                    stdin=stdin, stdout=stdout, stderr=log, start_new_session=True,
                )  # fmt: skip
                process.returncode = 0  # `Capture` waits for it
                self.last = Capture(process.pid, to_child, from_child)
        os.close(stdin)
        os.close(stdout)
        return self.last

    def catch_up(self) -> Capture:
        """A capture that reads up to where the server is now."""
        capture = self.start(until_now=True)
        code = capture.finish()
        assert code == 0, (code, capture.said[-1:], self.log_file.read_text()[-3000:])
        return capture


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError("the warm process ended")
        data += more
    return data
