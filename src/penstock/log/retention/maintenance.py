"""One thread a log, which calls its work at intervals, and early when there is a reason to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.errors import Fenced, OutcomeUnknown, PenstockError
from penstock.log.stall import STALL_SECONDS_MAX

_logger = logging.getLogger(__name__)


class Maintenance:
    """Calls `work` every `interval_seconds`, and soon after `wake`; never where the interval is 0.

    The thread ends for good when `work` raises `Fenced` or `OutcomeUnknown`; after other errors the next round tries again.
    """

    def __init__(self, name: str, interval_seconds: float, work: Callable[[], object]) -> None:
        self.last_error: Exception | None = None
        self._interval_seconds = interval_seconds
        self._work = work
        self._closing = False
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        if interval_seconds:
            self._thread = threading.Thread(target=self._run, name=f"{name} maintenance", daemon=True)

    def start(self) -> None:
        if self._thread is not None:
            self._thread.start()

    def wake(self) -> None:
        self._wanted.set()

    def close(self) -> None:
        """Returns once the thread has ended. A thread that the disk does not answer is left behind."""
        self._closing = True
        self._wanted.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STALL_SECONDS_MAX)

    def _run(self) -> None:
        while True:
            self._wanted.wait(self._interval_seconds)
            self._wanted.clear()
            if self._closing:
                return
            try:
                self._work()
                self.last_error = None
            except (Fenced, OutcomeUnknown) as error:
                self.last_error = error
                return
            except (PenstockError, OSError) as error:
                if self.last_error is None:
                    _logger.warning("maintenance of a log failed and will be tried again: %s", error)
                self.last_error = error
