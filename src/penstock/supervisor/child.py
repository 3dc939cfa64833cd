"""A running child process, seen from its parent: settings in, events out, a log file, and nothing left behind.

The protocol is described in `penstock.process`. What the parent adds:

1. All events but `progress`, and lines that are no event, go to the child's log file too: the last words help whoever
   reads it.
2. Standard error goes to `run/<name>.log`, at most `LOG_BYTES_MAX`, and one older file of that size is kept. A disk that
   takes no lines costs those lines alone: whoever does not read on would stop the child, at a full pipe.
3. A child leads a process group of its own, so Ctrl-C in the terminal reaches only `penstock run`, which stops its
   children in order. When a child has ended, what it left behind in its group is killed.
4. On Linux the kernel kills the child when the run dies, however the run dies.
5. Secrets of the settings reach a child on its standard input alone: variables of the environment that hold one are not
   passed on, and what a child (or a library in it) prints is written without them, and with escapes for what a terminal
   would obey.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from penstock.errors import Unavailable
from penstock.files.private import open_private, users_umask, write_private
from penstock.observe.logging import redact
from penstock.observe.shown import shown_lines
from penstock.process import Event
from penstock.secret import environment_without_secrets, revealed
from penstock.threads import start_thread

LOG_BYTES_MAX = 8 << 20
_NOT_LOGGED = (Event.PROGRESS, Event.METRICS)  # they come all the time, and would push everything else out of the file
_LAST_LINES_SECONDS = 1.0  # how long to read on after the child has ended: a grandchild may hold the pipe open

# Asks the kernel to kill this process when its parent dies, then becomes the child. (Not a preexec_fn: between fork and
# exec of a process with threads, Python code may deadlock.) If the parent died before that, the kernel would never kill
# us: so look afterwards whether it is still there.
_BOUND_TO_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True)
class ChildSaid:
    child: str
    pid: int
    event: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChildEnded:
    child: str
    pid: int
    code: int  # negative: the signal that killed it


Report = ChildSaid | ChildEnded


class Child:
    """A running child. Its reports arrive in `reports`; `ChildEnded` is the last one.

    Making one raises `OSError` where the system gives no process, and `Unavailable` where it gives none of the threads
    (they often count against one limit): then nothing of it runs.
    """

    def __init__(
        self, name: str, argv: tuple[str, ...], settings: dict[str, Any], run_dir: Path, reports: queue.Queue[Report]
    ) -> None:
        self.name = name
        self._reports = reports
        self._asking = threading.Lock()
        self._log = _LimitedLog(run_dir / f"{name}.log")
        self._pid_file = run_dir / f"{name}.pid"
        # The calling thread must outlive the child: the kernel kills the child when that thread ends.
        self._process = subprocess.Popen(
            bound(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            umask=users_umask(),  # it sets its own (`ChildProcess`), and must know the user's
            env=environment_without_secrets(),
        )
        self.pid = self._process.pid
        with contextlib.suppress(OSError):  # a full disk, say; only people read it
            write_private(self._pid_file, f"{self.pid}\n")
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            self._lines = self._thread(self._read_events, self._process.stdout)
            self._thread(self._read_log, self._process.stderr)
            self._writing = self._thread(
                self._write, json.dumps(revealed(settings), separators=(",", ":")).encode() + b"\n"
            )
            self._thread(self._wait)
        except Unavailable:
            self.kill()
            self._process.wait()
            self._remove_pid_file()
            raise

    def ask_to_stop(self) -> None:
        """Closes the child's standard input."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def ask(self, request: dict[str, Any]) -> None:
        """Writes a request (`penstock.process`) once the settings are written. Returns at once. Raises `Unavailable` where the
        system gives no thread for it."""
        self._thread(self._write_request, json.dumps(revealed(request), separators=(",", ":")).encode() + b"\n")

    def kill(self) -> None:
        """Kills the child and everything in its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _thread(self, target: Any, *arguments: Any) -> threading.Thread:
        return start_thread(partial(target, *arguments), f"{self.name}-{target.__name__}")

    def _write_request(self, line: bytes) -> None:
        self._writing.join()
        with self._asking:  # one line after the other
            self._write(line)

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # the child ended, or was asked to stop, before it read the line
            # Not through the buffered writer: its lock would make `ask_to_stop` wait for a child that does not read.
            descriptor, view = self._process.stdin.fileno(), memoryview(line)
            while view:
                view = view[os.write(descriptor, view) :]

    def _read_events(self, stream: IO[bytes]) -> None:
        for line in stream:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            known = isinstance(event, dict) and isinstance(event.get("event"), str)
            if known:
                self._reports.put(ChildSaid(self.name, self.pid, event))
            if not known or event["event"] not in _NOT_LOGGED:
                self._log.write(line)

    def _read_log(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(ValueError):
            for line in stream:
                self._log.write(line)
        self._lines.join()  # what the child said last may not be read yet
        self._log.close()

    def _wait(self) -> None:
        code = self._process.wait()
        self._lines.join(_LAST_LINES_SECONDS)
        self.kill()  # what is left of its group; the system does not reuse the pid while a member of the group lives
        self._remove_pid_file()
        self._reports.put(ChildEnded(self.name, self.pid, code))

    def _remove_pid_file(self) -> None:
        with contextlib.suppress(OSError):
            if self._pid_file.read_text().strip() == str(self.pid):
                self._pid_file.unlink()


def bound(argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` as a child which the kernel kills when this process dies, however early that is: a
    child that looks for its parent only once it has imported everything may find another one."""
    if not sys.platform.startswith("linux"):
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", _BOUND_TO_PARENT, str(os.getpid()), *argv]


class _LimitedLog:
    """A log file of at most `LOG_BYTES_MAX`; when it is full it becomes the older file, and an empty one is begun. Lines that
    the disk does not take are counted, and their number stands in their place once it takes some again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._size = 0
        self._missing = 0
        self._closed = False
        with contextlib.suppress(OSError):  # the next line tries again
            self._open()

    def write(self, line: bytes) -> None:
        line = shown_lines(redact(line.decode("utf-8", "surrogateescape"))).encode()
        with self._lock:
            if self._closed:
                return
            try:
                if self._missing:
                    self._append(b"(%d lines are missing here: the disk took none)\n" % self._missing)
                    self._missing = 0
                self._append(line)
            except OSError:
                self._missing += 1
                self._let_go()

    def _append(self, line: bytes) -> None:
        if self._file is not None and self._size + len(line) > LOG_BYTES_MAX:
            self._let_go()
            self._path.replace(self._path.with_suffix(".log.1"))
        file = self._file or self._open()
        file.write(line)
        file.flush()
        self._size += len(line)

    def _open(self) -> IO[bytes]:
        self._file = open_private(self._path, "ab")
        self._size = self._path.stat().st_size
        return self._file

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # it tries once more to write what was refused
                file.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._let_go()
