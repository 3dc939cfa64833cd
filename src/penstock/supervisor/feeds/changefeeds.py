"""The changefeeds of a run: settings and keepers, those that have failed, and which child knows which of them.

Changefeeds come and go while the run goes on (`change`). A child process knows those that were in its settings when it
was started; what changed since is asked of it (`Members`), again and again until it has done so, in this order:

- one that is added: (1) its keeper is open; (2) delivery has it; (3) the driver has it.
- one that is removed: (1) the driver's jobs of it have ended; (2) delivery has written what was published, and closed it;
  (3) its keeper is closed. Its cursor stays, and holds the log: where it is added again, it goes on there.

Used only by the thread of the run, but for `settings` and `failed`, which others read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from penstock.changefeed.forgetting import forget_changefeed
from penstock.changefeed.keeper import Keeper
from penstock.changefeed.maintainer import BeginRun, Maintainer
from penstock.clock import Clock
from penstock.entries.whole_end import find_whole_end
from penstock.errors import BadInput, PenstockError, Unavailable, kept
from penstock.files import Files
from penstock.log import LogReader
from penstock.log.position import Position
from penstock.process import EXIT_CONFIGURATION
from penstock.rules.versions import RowSettings, key_fingerprint
from penstock.secret import Secret
from penstock.supervisor.requests import Requests
from penstock.supervisor.restarts import ChildSlot, Failure
from penstock.supervisor.settings import RunSettings, Settings, without_mask_keys

ASK_AGAIN_SECONDS = 1.0


class Changefeeds:
    """`opened` and `closed` are told of each maintainer that comes and goes."""

    def __init__(
        self,
        settings: RunSettings,
        begin_run: BeginRun,
        *,
        opened: Callable[[Maintainer], None],
        closed: Callable[[str], None],
        files: Files,
        clock: Clock,
    ) -> None:
        self.settings: dict[str, Settings] = dict(settings.changefeeds)
        self.failed: dict[str, Failure] = {}
        self.notes: list[str] = []  # what changed with this start, for whoever started it
        self.maintainers: dict[str, Maintainer] = {}
        self._leaving: dict[str, Maintainer] = {}
        self._lost: PenstockError | None = None  # what the close of one that left raised
        self._state_dir = settings.state_dir
        self._reader: LogReader | None = None
        self._begin_run = begin_run
        self._opened = opened
        self._closed = closed
        self._files = files
        self._clock = clock

    # ---- keepers

    def open(self, reader: LogReader) -> None:
        """The log is there: opens every keeper. Raises what one of them refuses with."""
        self._reader = reader
        for name, settings in self.settings.items():
            self._take(name, self._open_keeper(name, settings))

    @property
    def all_open(self) -> bool:
        return len(self.maintainers) == len(self.settings)

    @property
    def active(self) -> dict[str, Maintainer]:
        """Those that nobody paused and that did not fail: nobody waits for the others."""
        return {
            name: one
            for name, one in self.maintainers.items()
            if one.keeper.paused_ms is None and name not in self.failed
        }

    @property
    def broken(self) -> PenstockError | None:
        """What broke a keeper, also one that is gone since; None while all of them work."""
        if self._lost is not None:
            return self._lost
        keepers = (one.keeper for one in (*self.maintainers.values(), *self._leaving.values()))
        return next((keeper.broken for keeper in keepers if keeper.broken is not None), None)

    def whole_end(self, reader: LogReader) -> Position:
        """The end of the last whole transaction of the log, where nobody appends to it: no run publishes more than that."""
        known = min((one.keeper.mark_delete for one in self.maintainers.values()), default=None)
        try:
            return find_whole_end(reader, known).position if known is not None else reader.end()
        except PenstockError:
            return reader.end()

    def close(self) -> None:
        """Closes all of them, whatever one of them raises."""
        with contextlib.ExitStack() as stack:
            for one in (*self.maintainers.values(), *self._leaving.values()):
                stack.callback(one.close)

    def _open_keeper(self, name: str, settings: Settings, *, capturing: bool = False) -> Keeper:
        assert self._reader is not None
        keeper = Keeper.open(self._state_dir, name, self._reader, files=self._files, clock=self._clock)
        try:
            self._keep_settings(keeper, settings, capturing=capturing)
        except PenstockError:
            keeper.close()
            raise
        return keeper

    def _keep_settings(self, keeper: Keeper, settings: Settings, *, capturing: bool) -> None:
        """Before any run begins: the settings that shape rows hold from where the log ends now, if they are others."""
        key = settings.get("mask_key")
        key = key.reveal() if isinstance(key, Secret) else key
        known = keeper.settings_versions
        begun = keeper.keep_settings(RowSettings.of(settings, key), key_fingerprint(key), capturing=capturing)
        if begun is not None:
            what = known[-1].settings.difference(begun.settings)
            self.notes.append(
                f"{keeper.name}: {what}, for changes from {begun.since} on (penstock backfill loads rows from before)"
            )

    def _take(self, name: str, keeper: Keeper) -> None:
        self.maintainers[name] = Maintainer(keeper, self._begin_run)
        self._opened(self.maintainers[name])

    # ---- failures

    def fail(self, name: str, failure: Failure) -> None:
        """It stands still from here on; what the others do goes on."""
        if name in self.settings:
            self.failed.setdefault(name, failure)

    def try_again(self, known: Collection[str]) -> None:
        """A new driver has begun: those among `known`, which delivery has, are tried again by it."""
        for name in [name for name in self.failed if name in known]:
            self.failed.pop(name, None)

    @property
    def failure(self) -> Failure | None:
        """That of the first that failed, which names it."""
        if not self.failed:
            return None
        name, first = next(iter(self.failed.items()))
        message = first.message if len(self.settings) == 1 else f"{name}: {first.message}"
        if len(self.failed) > 1:
            message += f" (and {', '.join(list(self.failed)[1:])})"
        return Failure(first.exit_code, message, first.hint)

    @property
    def all_failed(self) -> bool:
        return len(self.failed) == len(self.settings)

    # ---- changes

    def change(self, wanted: Mapping[str, Settings]) -> dict[str, list[str]]:
        """Adds those that are new and removes those that are gone: {added, removed, changed}; `changed` are those whose other
        settings count from the next run on. Raises what the keeper of a new one refuses with; then nothing is changed."""
        added = [name for name in wanted if name not in self.settings]
        removed = [name for name in self.settings if name not in wanted]
        changed = [name for name in wanted if name in self.settings and wanted[name] != self.settings[name]]
        if leaving := [name for name in added if name in self._leaving]:
            raise Unavailable(f"{leaving[0]} is still being removed", hint="try again in a moment")
        opened: dict[str, Keeper] = {}
        try:
            if self._reader is not None:
                for name in added:
                    opened[name] = self._open_keeper(name, wanted[name], capturing=True)
        except PenstockError:
            for keeper in opened.values():
                keeper.close()
            raise
        self.settings |= {name: dict(wanted[name]) for name in added}
        for name, keeper in opened.items():
            self._take(name, keeper)
        for name in removed:
            del self.settings[name]
            self.failed.pop(name, None)
            if name in self.maintainers:
                self._leaving[name] = self.maintainers.pop(name)
        return {"added": added, "removed": removed, "changed": changed}

    def forget(self, name: str) -> dict[str, Any]:
        """Gives up the place in the log of one that is not of this run: {}, once durable (changefeed/forgetting.py)."""
        if name in self.settings:
            raise BadInput(
                f"{name} is a sink of this run", hint="take it out of the configuration, then penstock reload"
            )
        if name in self._leaving or self._reader is None:
            raise Unavailable(f"{name} is still being removed", hint="try again in a moment")
        forget_changefeed(self._state_dir, name, self._reader, files=self._files)
        return {}

    def follow(self, delivery: Members, driver: Members) -> None:
        """Brings the children in line. Called again and again."""
        delivery.add(without_mask_keys(self.settings), self._refused)
        driver.add({name: one for name, one in self.settings.items() if delivery.has(name)}, self._refused)
        driver.remove(self.settings)
        delivery.remove({*self.settings, *driver.names})
        for name in [name for name in self._leaving if not delivery.has(name) and not driver.has(name)]:
            try:
                self._leaving.pop(name).close()
            except PenstockError as error:  # the run ends with it, as with that of a keeper that stays
                self._lost = self._lost or kept(error)
            self._closed(name)

    def _refused(self, name: str, error: PenstockError) -> None:
        self.fail(name, Failure(EXIT_CONFIGURATION, error.message, error.hint))


class Members:
    """What the process in a slot knows of the changefeeds, and the requests that change it."""

    def __init__(self, slot: ChildSlot, requests: Requests, clock: Clock) -> None:
        self._slot = slot
        self._requests = requests
        self._clock = clock
        self._pid: int | None = None
        self._known: set[str] = set()
        self._refused: set[str] = set()
        self._asked: set[str] = set()  # and not answered yet
        self._not_before = 0.0

    @property
    def names(self) -> set[str]:
        """The changefeeds of the process that runs now; none where none runs."""
        if self._slot.pid != self._pid:
            self._pid = self._slot.pid
            self._known = set(self._slot.started_with.get("changefeeds", ())) if self._pid is not None else set()
            self._asked, self._refused = set(), set()
        return self._known

    def has(self, name: str) -> bool:
        return name in self.names

    def add(self, wanted: Mapping[str, Settings], refused: Callable[[str, PenstockError], None]) -> None:
        names = self.names
        self._refused &= wanted.keys()  # one that went and comes back may have other settings
        for name in wanted.keys() - names - self._refused:

            def answered(error: PenstockError | None, name: str = name) -> None:
                if error is None:
                    self._known.add(name)
                elif not error.transient:
                    self._refused.add(name)
                    refused(name, error)

            self._ask({"op": "add", "changefeed": name, "settings": wanted[name]}, name, answered)

    def remove(self, wanted: Mapping[str, Settings] | set[str]) -> None:
        for name in self.names - set(wanted):

            def answered(error: PenstockError | None, name: str = name) -> None:
                if error is None:
                    self._known.discard(name)

            self._ask({"op": "remove", "changefeed": name}, name, answered)

    def forgive(self, name: str) -> None:
        """What the process refused is asked of it again. From any thread."""
        self._refused.discard(name)

    def _ask(self, request: Settings, name: str, answered: Callable[[PenstockError | None], None]) -> None:
        if name in self._asked or self._slot.state != "running" or self._clock.monotonic() < self._not_before:
            return
        self._asked.add(name)
        pid = self._pid

        def take(answer: dict[str, Any] | PenstockError) -> None:
            if pid != self._slot.pid:
                return  # of a process that is gone: the one after it has its own settings
            self._asked.discard(name)
            if isinstance(answer, PenstockError):
                self._not_before = self._clock.monotonic() + ASK_AGAIN_SECONDS
                answered(answer)
            else:
                answered(None)

        self._requests.send(request, take)
