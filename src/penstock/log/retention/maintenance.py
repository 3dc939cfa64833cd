"""One thread a log, which calls its work at intervals, and early when there is a reason to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.errors import Fenced, OutcomeUnknown, PenstockError, kept
from penstock.log.stall import STALL_SECONDS_MAX
from penstock.observe.metrics import METRICS
from penstock.threads import start_thread

_logger = logging.getLogger(__name__)


class Maintenance:
    """Calls `work` every `interval_seconds`, and soon after `wake`; never where the interval is 0.

    The thread ends for good when `work` raises `Fenced` or `OutcomeUnknown`: then the log itself has stopped. After any
    other error the next round tries again, also after one that nobody expected: a log whose ledgers are never trimmed
    fills the disk. The error is kept in `last_error`, counted, and logged when it is a new one.
    """

    def __init__(self, name: str, interval_seconds: float, work: Callable[[], object]) -> None:
        self.last_error: Exception | None = None  # of the last round; None where it went well
        self.failures = 0
        self._interval_seconds = interval_seconds
        self._work = work
        self._closing = False
        self._wanted = threading.Event()
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Raises `Unavailable` where the system gives no thread."""
        if self._interval_seconds:
            self._thread = start_thread(self._run, f"{self._name} maintenance")

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
                self._failed(error)
                return
            except Exception as error:
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        expected = isinstance(error, PenstockError | OSError)
        if repr(error) != repr(self.last_error):
            _logger.log(
                logging.WARNING if expected else logging.ERROR,
                "maintenance of a log failed and will be tried again: %s: %s",
                type(error).__name__,
                error,
                exc_info=None if expected else error,
            )
        self.last_error = kept(error)
        self.failures += 1
        METRICS.log_maintenance_failures.inc()
