"""One child process of a run: started with its settings on standard input, heard by its JSON lines, stopped by the end
of its input.

1. It gets its settings as one line of JSON; standard input then stays open, and its end is the wish to stop.
2. Each line on standard output is an event: `{"event": "ready"}`, `{"event": "caught-up", "log_end": "L:E"}`,
   `{"event": "error", "kind": …, "message": …, "hint": …}` (its last words), `{"event": "progress", …}`. All but
   `progress`, and lines that are not JSON, go to the log too.
3. Standard error goes to `run/<name>.log`, at most `LOG_BYTES_MAX`, and one older file as large.
4. It leads a process group of its own, so that Ctrl-C in the terminal reaches only `penstock run`, which stops its
   children in order; what a dead child left behind in its group is killed before it is started again.
5. Where the system can do it, the kernel kills it when the run dies, however the run dies.
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
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

LOG_BYTES_MAX = 8 << 20
_LAST_LINES_SECONDS = 1.0  # how long an ended child's pipe may still be read (a grandchild can hold it open)

# Asks the kernel to kill this process with its parent, then becomes the child. Not a preexec_fn: code between fork and exec
# of a process with threads may deadlock. If the parent died before the question, nobody would kill us: so look.
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


class Process:
    """A running child. Its reports come on `reports`; after `ChildEnded` nothing more comes."""

    def __init__(
        self, name: str, argv: tuple[str, ...], settings: dict[str, Any], run_dir: Path, reports: queue.Queue[Report]
    ) -> None:
        self.name = name
        self._reports = reports
        self._log = _LimitedLog(run_dir / f"{name}.log")
        self._pid_file = run_dir / f"{name}.pid"
        # The caller's thread must outlive the child: the kernel's death signal comes when that thread ends.
        self._process = subprocess.Popen(
            _bound(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._pid_file.write_text(f"{self.pid}\n")
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._lines = self._thread(self._read_events, self._process.stdout)
        self._thread(self._read_log, self._process.stderr)
        self._thread(self._write_settings, json.dumps(settings, separators=(",", ":")).encode() + b"\n")
        self._thread(self._wait)

    def ask_to_stop(self) -> None:
        """Closes its standard input."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def kill(self) -> None:
        """Ends it and everything in its process group, now."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _thread(self, target: Any, *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, name=f"{self.name}-{target.__name__}", daemon=True)
        thread.start()
        return thread

    def _write_settings(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it ended, or was stopped, before it read them
            # Past the buffered writer, whose lock would make `ask_to_stop` wait for a child that does not read.
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
            if not known or event["event"] != "progress":
                self._log.write(line)  # what it said last helps whoever reads the log

    def _read_log(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(ValueError):
            for line in stream:
                self._log.write(line)
        self._log.close()

    def _wait(self) -> None:
        code = self._process.wait()
        self._lines.join(_LAST_LINES_SECONDS)
        self.kill()  # what it left behind in its group; its pid is not reused while a group member lives
        with contextlib.suppress(OSError):
            if self._pid_file.read_text().strip() == str(self.pid):
                self._pid_file.unlink()
        self._reports.put(ChildEnded(self.name, self.pid, code))


def _bound(argv: tuple[str, ...]) -> list[str]:
    if not sys.platform.startswith("linux"):
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", _BOUND_TO_PARENT, str(os.getpid()), *argv]


class _LimitedLog:
    """A file that starts again at its limit, keeping one older file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = path.open("ab")
        self._size = path.stat().st_size

    def write(self, line: bytes) -> None:
        with self._lock:
            if self._file is None:
                return
            if self._size + len(line) > LOG_BYTES_MAX:
                self._file.close()
                self._path.replace(self._path.with_suffix(".log.1"))
                self._file = self._path.open("ab")
                self._size = 0
            self._file.write(line)
            self._file.flush()
            self._size += len(line)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
