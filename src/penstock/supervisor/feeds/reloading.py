"""Reading the configuration again while the run goes on: sinks come and go, and what else changed waits for the next run."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable
from typing import Any

from penstock.clock import Clock
from penstock.errors import PenstockError, Unavailable
from penstock.files import Files
from penstock.supervisor.feeds.changefeeds import Changefeeds
from penstock.supervisor.requests import Answer
from penstock.supervisor.restarts import ChildSlot
from penstock.supervisor.run_directory import write_settings_record
from penstock.supervisor.settings import RunSettings, child_documents, reloaded_record

RELOAD_SECONDS_MAX = 20.0

ReadAgain = Callable[[], RunSettings]
Wish = Callable[[], dict[str, Any]]


class Reloading:
    """`ask` is for threads of `control.sock`; what is decided is decided by the thread of the run, in `fulfil`."""

    def __init__(
        self,
        settings: RunSettings,
        feeds: Changefeeds,
        slots: dict[str, ChildSlot],
        read_again: ReadAgain | None,
        *,
        files: Files,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._feeds = feeds
        self._slots = slots
        self._read_again = read_again
        self._record = settings.record
        self._files = files
        self._clock = clock
        self._wishes: queue.SimpleQueue[tuple[Wish, queue.SimpleQueue[Answer]]] = queue.SimpleQueue()

    def ask(self) -> dict[str, Any]:
        """Brings the changefeeds in line with the configuration as it is now: {added, removed, restart}."""
        if self._read_again is None:
            raise Unavailable("this run has no configuration to read again")
        wanted = self._read_again()
        return self._wait_for(lambda: self._reload(wanted))

    def ask_to_forget(self, name: str) -> dict[str, Any]:
        """Gives up the place in the log of a changefeed that is not of this run any more."""
        return self._wait_for(lambda: self._feeds.forget(name))

    def _wait_for(self, wish: Wish) -> dict[str, Any]:
        answer: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._wishes.put((wish, answer))
        try:
            found = answer.get(timeout=RELOAD_SECONDS_MAX)
        except queue.Empty:
            raise Unavailable("the run is about to end", hint="the next one reads the configuration") from None
        if isinstance(found, PenstockError):
            raise found
        return found

    def fulfil(self) -> None:
        while not self._wishes.empty():
            wish, answer = self._wishes.get()
            try:
                answer.put(wish())
            except PenstockError as error:
                answer.put(error)

    def _reload(self, wanted: RunSettings) -> dict[str, Any]:
        changed = self._feeds.change(wanted.changefeeds)
        for name, document in child_documents(self._settings, self._feeds.settings).items():
            self._slots[name].settings = document
        self._record_again(wanted, changed["added"], changed["removed"])
        sinks = [f"sinks.{name}" for name in changed.pop("changed")]
        return {**changed, "restart": [*self._settings.differences(wanted), *sinks]}

    def _record_again(self, wanted: RunSettings, added: list[str], removed: list[str]) -> None:
        """What `penstock plan` compares with has the sinks of now."""
        if self._record is not None and wanted.record is not None and (added or removed):
            self._record = reloaded_record(self._record, wanted.record, added, removed)
            with contextlib.suppress(OSError):  # a full disk, say: nothing else depends on it
                write_settings_record(self._settings.state_dir, self._record, self._clock.wall_ms(), self._files)
