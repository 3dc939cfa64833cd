"""Whether there is room for more of the log: below the limit of its size, and with enough of the disk left for the others
who write there. Without room capture reads nothing more: the source keeps it until there is, and nothing is lost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import PenstockError
from penstock.log import Log
from penstock.state.checkpoints.recovery import PIN, START_PIN

LOOK_SECONDS = 0.25  # between two looks at the disk, at most
LOOK_BYTES = 4 << 20  # and so many appended bytes
TRIM_SECONDS = 1.0  # between two trims of a log that is full

Measure = Callable[[Path], int]


def used_bytes(directory: Path) -> int:
    """What the files of a directory take, without those of directories in it."""
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    except FileNotFoundError:
        return 0


def free_bytes(directory: Path) -> int:
    """What this user may still write to the disk of a directory."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


class Room:
    """Of one log. For the thread of the capture loop."""

    def __init__(
        self,
        log: Log,
        directory: Path,
        *,
        log_bytes_max: int | None,
        free_bytes_min: int,
        clock: Clock = SYSTEM_CLOCK,
        used: Measure = used_bytes,
        free: Measure = free_bytes,
    ) -> None:
        self._log = log
        self._directory = directory
        self._log_bytes_max = log_bytes_max
        self._free_bytes_min = free_bytes_min
        self._clock = clock
        self._used, self._free = used, free
        self._looked = self._trimmed = clock.monotonic() - max(LOOK_SECONDS, TRIM_SECONDS)
        self._appended_bytes = 0
        self._look_bytes = min(LOOK_BYTES, (log_bytes_max or LOOK_BYTES) // 16)
        self._lack = ""
        self.checkpoint: Callable[[], object] = lambda: None  # of the log's state, once there is one

    def lack(self, appended_bytes: int = 0) -> str:
        """Why nothing more may be appended now; empty while there is room. `appended_bytes`: all that was appended so far."""
        now = self._clock.monotonic()
        if now - self._looked >= LOOK_SECONDS or appended_bytes - self._appended_bytes >= self._look_bytes:
            self._looked, self._appended_bytes = now, appended_bytes
            self._lack = self._look()
            if self._lack and now - self._trimmed >= TRIM_SECONDS:
                self._trim()
        return self._lack

    def _look(self) -> str:
        limit = self._log_bytes_max
        if limit is not None and (used := self._used(self._directory)) >= limit:
            return f"the log has {_mib(used)} of {_mib(limit)} (limits.log_disk)"
        if (free := self._free(self._directory)) < self._free_bytes_min:
            return (
                f"the disk of {self._directory} has {_mib(free)} left, less than "
                f"{_mib(self._free_bytes_min)} (limits.disk_free)"
            )
        return ""

    def _trim(self) -> None:
        """What every sink has goes at once, not at the next look of the log's maintenance."""
        self._trimmed = self._clock.monotonic()
        trimmed: list[int] = []
        with contextlib.suppress(PenstockError, OSError):  # tried again, and the maintenance says so
            trimmed = self._log.trim()
        if not trimmed and self._only_the_state_pins():
            self.checkpoint()

    def _only_the_state_pins(self) -> bool:
        """Whether every sink has passed entries that are kept for the state's older checkpoints alone."""
        slowest = min((cursor.mark_delete for cursor in self._log.cursors()), default=None)
        pinned = [position for name, position in self._log.pins().items() if name in (PIN, START_PIN)]
        return slowest is not None and any(position < slowest for position in pinned)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
