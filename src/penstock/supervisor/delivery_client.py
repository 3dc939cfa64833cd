"""What the run asks of the delivery process. Requests that may take long have threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock.delivery.keeper_client import PauseWish
from penstock.errors import PenstockError, Unavailable
from penstock.threads import start_thread
from penstock.wire import connect, socket_path

BEGIN_RUN_SECONDS_MAX = 120.0  # delivery answers once its writes in flight are over
STATUS_SECONDS_MAX = 5.0


class DeliveryClient:
    def __init__(self, state_dir: Path) -> None:
        self._run_dir = state_dir / "run"

    @property
    def path(self) -> Path:
        return socket_path(self._run_dir, "delivery")

    def begin_run(self, changefeed: str, run: str, wish: PauseWish) -> dict[str, Any]:
        with connect(self.path, timeout_seconds=BEGIN_RUN_SECONDS_MAX) as client:
            return client.call("begin_run", changefeed=changefeed, run=run, **wish._asdict())

    def pause(self, changefeed: str, wish: PauseWish) -> None:
        """From here on delivery asks for nothing more of the changefeed, or asks again."""
        with connect(self.path, timeout_seconds=STATUS_SECONDS_MAX) as client:
            client.call("pause", changefeed=changefeed, **wish._asdict())

    def leave_out(self, changefeed: str, dispatcher: str, *, out: bool) -> None:
        """From here on delivery leaves the dispatcher out, or has it replayed."""
        with connect(self.path, timeout_seconds=STATUS_SECONDS_MAX) as client:
            client.call("leave_out", changefeed=changefeed, dispatcher=dispatcher, out=out)

    def status(self) -> dict[str, Any]:
        """Of dispatchers only those in trouble."""
        with connect(self.path, timeout_seconds=STATUS_SECONDS_MAX) as client:
            return client.call("status", all_dispatchers=False)

    def metrics(self) -> str:
        """Delivery's metrics, as text for Prometheus."""
        with connect(self.path, timeout_seconds=STATUS_SECONDS_MAX) as client:
            return str(client.call("metrics")["text"])

    def flush(self, changefeeds: list[str], timeout_seconds: float) -> Flush:
        """Asks delivery to bring everything published to the sinks, for all changefeeds at the same time."""
        return Flush(self.path, changefeeds, timeout_seconds)


class Flush:
    """A flush that is going on: one thread a changefeed. `errors` has those of the changefeeds that failed."""

    def __init__(self, path: Path, changefeeds: list[str], timeout_seconds: float) -> None:
        self.changefeeds = changefeeds
        self.errors: dict[str, PenstockError] = {}
        self._path = path
        self._timeout = timeout_seconds
        self._threads: list[threading.Thread] = []
        for name in changefeeds:
            try:
                self._threads.append(start_thread(partial(self._one, name), f"flush-{name}"))
            except Unavailable as error:  # that changefeed is flushed with the next try, or by its interval
                self.errors[name] = error

    @property
    def over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def _one(self, changefeed: str) -> None:
        try:
            with connect(self._path, timeout_seconds=self._timeout) as client:
                client.call("flush", changefeed=changefeed, timeout_seconds=self._timeout)
        except PenstockError as error:
            self.errors[changefeed] = error


class DeliveryPoll:
    """The latest answer of delivery to `status`, asked for on a thread, so that a slow answer holds up nobody. `answered` is
    called with each."""

    def __init__(self, client: DeliveryClient, every_seconds: float, answered: Callable[[], None]) -> None:
        self.latest: dict[str, Any] = {}
        self._client = client
        self._every = every_seconds
        self._answered = answered
        self._stop = threading.Event()
        threading.Thread(target=self._poll, name="delivery-poll", daemon=True).start()

    def close(self) -> None:
        self._stop.set()

    def _poll(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.latest = self._client.status()
                self._answered()
            except PenstockError:
                self.latest = {}  # delivery is starting or gone, which its child's state shows, or it hangs (`ChildSlot.silence`)
