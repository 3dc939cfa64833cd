"""The thread that spills: one for a spool, however many dispatchers it has, and none before it is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.clock import Clock
from penstock.delivery.spool.account import Account
from penstock.delivery.spool.spiller import Spiller

ADMIT_SECONDS_MAX = 5.0  # how long a stager waits for the spiller


class Background:
    """Calls `step` while there is something to do. With `enabled=False` there is no thread: whoever waits does the work."""

    def __init__(
        self,
        spiller: Spiller,
        account: Account,
        step: Callable[[], bool],
        clock: Clock,
        *,
        name: str,
        enabled: bool,
    ) -> None:
        self._spiller = spiller
        self._account = account
        self._step = step
        self._clock = clock
        self._name = name
        self._enabled = enabled
        self._condition = threading.Condition()
        self._signalled = False
        self._closed = False
        self._in_vain = 0  # steps that found nothing to do
        self._thread: threading.Thread | None = None

    def signal(self) -> None:
        """Starts or wakes the thread if there is something to do."""
        if not self._enabled or not self._spiller.wanted:
            return
        with self._condition:
            if self._closed:
                return
            self._signalled = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"spill-{self._name}", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def wait_for_memory(self, most_bytes: int) -> None:
        """Returns once memory is down to `most_bytes`, or nothing is left to be spilled (what an item costs beside its body
        stays in memory), or the disk fails, or the time is over."""
        if not self._enabled:
            while self._account.memory_bytes > most_bytes and self._step():
                pass
            return
        in_vain = self._in_vain
        self.signal()
        deadline = self._clock.monotonic() + ADMIT_SECONDS_MAX
        with self._condition:
            while (
                self._account.memory_bytes > most_bytes
                and self._in_vain == in_vain
                and self._account.disk_error is None
                and not self._closed
            ):
                left = deadline - self._clock.monotonic()
                if left <= 0 or not self._condition.wait(left):
                    return

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            did = self._step()
            with self._condition:
                self._in_vain += not did
                self._condition.notify_all()  # stagers that wait for memory
                if not did and not self._signalled and not self._closed:
                    self._condition.wait(self._spiller.until_retry())
                self._signalled = False
