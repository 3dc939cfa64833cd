"""Reads the checkpoints of a state from the disk, slowly and again and again, so that damage is found while it is small.

Checkpoints share their runs: what is damaged in one is damaged in all of them, and the part of the log that could
replace it may be trimmed. That is safe because (1) a run is read back whole before a manifest names it; (2) each run
carries the parity to rebuild a damaged page, or all pages in one damaged place; (3) a scrub finds the damage before a
second one meets it, and writes the run anew.

The thread is started once there is a checkpoint, and its first scrub is due one interval after the last one of any
process (scrub_time.py). Where a scrub finds what parity cannot mend, the state is healed as
after a read that met the damage: from another checkpoint, or from the log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.clock import Clock
from penstock.errors import Closed, Corruption, PenstockError, Unavailable
from penstock.log import Log
from penstock.observe.metrics import METRICS
from penstock.state.checkpoints.recovery import DIRECTORY
from penstock.state.checkpoints.scrub_time import ScrubTime
from penstock.state.engines.engine import Finding, StateEngine
from penstock.state.settings import StateSettings
from penstock.threads import start_thread

_CLOSE_SECONDS_MAX = 30.0  # a close does not hang on a disk that does not answer

_logger = logging.getLogger(__name__)


class Scrubber:
    """Scrubs the checkpoints of one state. `current` returns the engine in force, which `heal` replaces;
    `writing` is held while files are written, so that no engine that was replaced writes any."""

    def __init__(
        self,
        log: Log,
        writing: threading.Lock,
        current: Callable[[], StateEngine],
        settings: StateSettings,
        clock: Clock,
        *,
        heal: Callable[[Corruption], None],
    ) -> None:
        self._log = log
        self._time = ScrubTime(log.files, log.directory / DIRECTORY, clock)
        self._writing = writing
        self._current = current
        self._interval = settings.scrub_interval_seconds
        self._bytes_per_second = settings.scrub_bytes_per_second
        self._heal = heal
        self._closing = threading.Event()
        self._turn = threading.Lock()  # one scrub at a time
        # Not `_turn`: a scrub takes long, and nobody waits for it to start the thread.
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None  # of the last scrub; None where it succeeded

    def start(self) -> None:
        """Starts the thread, unless there is one, or the settings want none. Called after each checkpoint, and never
        waits for a scrub."""
        with self._starting:
            if self._interval is None or self._thread is not None or self._closing.is_set():
                return
            try:
                self._thread = start_thread(self._run, "penstock-state-scrub")
            except Unavailable as error:  # the next checkpoint tries again
                self.error = error

    def scrub(self, pause: Callable[[int], None] | None = None) -> list[Finding]:
        """Reads all checkpoints once, and mends what is damaged. Returns what was. `pause`: as for an engine's
        `scrub`."""
        with self._turn:
            engine = self._current()
            try:
                found = engine.scrub(pause or METRICS.state_scrubbed_bytes.inc)
                with self._writing:
                    if found and engine is self._current():
                        self._log.check_owner()
                        engine.mend()
            except Corruption as error:
                _logger.warning("a scrub of the state of %s found damage: %s", self._log.directory, error)
                self._heal(error)
                self._time.note()
                return [Finding(str(self._log.directory), 0, error.message)]
            if found:
                METRICS.state_damage_mended.inc(len(found))
                _logger.warning(
                    "a scrub of the state of %s mended %d damaged places, the first: %s",
                    self._log.directory,
                    len(found),
                    found[0],
                )
            if engine.checkpoints():
                self._time.note()
            return found

    def close(self) -> bool:
        """Ends the thread, and a scrub of the thread's that is under way. False where its disk does not answer."""
        self._closing.set()
        with self._starting:  # a thread that is there was started: one that was not cannot be joined
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(_CLOSE_SECONDS_MAX)
        return not thread.is_alive()

    def _run(self) -> None:
        assert self._interval is not None
        wait = self._time.seconds_left(self._interval)
        while not self._closing.wait(wait):
            wait = self._interval
            try:
                self.scrub(self._pause)
                self.error = None
            except Closed:
                return
            except Exception as error:  # also one that nobody expected: damage would be found no more
                self.error = error
                unexpected = None if isinstance(error, PenstockError | OSError) else error
                _logger.warning(
                    "a scrub of the state of %s failed: %s",
                    self._log.directory,
                    error if unexpected is None else repr(error),
                    exc_info=unexpected,
                )

    def _pause(self, size: int) -> None:
        METRICS.state_scrubbed_bytes.inc(size)
        if self._closing.wait(size / self._bytes_per_second):
            raise Closed("the state was closed")
