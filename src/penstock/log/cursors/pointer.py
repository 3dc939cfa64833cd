"""A cursor's durable mark-delete in the metadata store, for trim and as the last resort (cursor_registry.py).

It is published late on purpose: when the mark-delete reaches another ledger, and at close. A metadata store that is down
holds back trim, never an ack.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from penstock.errors import Fenced, PenstockError, Unavailable
from penstock.log.cursors.registry import Registered, find, move, register
from penstock.log.ledgers.holds import log_list_key
from penstock.log.position import Position
from penstock.log.read.reader import LogReader
from penstock.log.records.workers import CHORES
from penstock.metadata import VersionConflict

_ATTEMPTS_MAX = 20


class Pointer:
    """The owner's hold on the registration. Thread-safe."""

    def __init__(self, reader: LogReader, registered: Registered, on_moved: Callable[[], None]) -> None:
        self._reader = reader
        self._registered = registered
        self._on_moved = on_moved
        self._lock = threading.Lock()
        self._queued = False
        self._held = False
        self._lost = False  # another owner changed it: it is theirs from then on

    @property
    def position(self) -> Position:
        return self._registered.mark_delete

    def publish_later(self, current: Callable[[], tuple[Position, int]]) -> None:
        """Publishes in the background where trim could make use of it. `current`: (durable mark-delete, last active)."""
        if self._queued or current()[0].ledger_id <= self._registered.mark_delete.ledger_id:
            return
        self._queued = True

        def run() -> None:
            self._queued = False
            self.publish(current)

        CHORES.run(run)

    def publish(self, current: Callable[[], tuple[Position, int]]) -> None:
        """Best effort: what fails now is published with a later position, or by the next owner."""
        with self._lock:
            mark_delete, active_ms = current()  # here, so that it is never one from before a reset
            if self._lost or self._held or mark_delete <= self._registered.mark_delete:
                return
            moved = replace(self._registered, mark_delete=mark_delete, active_ms=active_ms)
            try:
                self._registered = move(self._reader.metadata, self._reader.name, moved)
            except VersionConflict:
                self._lost = True
                return
            except PenstockError:
                return
        self._on_moved()

    def pull_back(self, position: Position) -> None:
        """Before a reset: from here on trim leaves alone what comes after `position`, until `release` and beyond.

        Raises `Fenced`, `Unavailable`.
        """
        with self._lock:
            if self._lost:
                raise Fenced(f"cursor {self._registered.name}: another owner changed its registration")
            moved = replace(self._registered, mark_delete=min(position, self._registered.mark_delete))
            self._registered = register_beside_trim(self._reader, lambda: moved)
            self._held = True

    def release(self) -> None:
        """The reset is durable: what is published from here on is true."""
        self._held = False


def register_beside_trim(reader: LogReader, choose: Callable[[], Registered]) -> Registered:
    """Registers what `choose` gives, which sees the ledger list as the transaction will: again where a trim came first.

    Raises `Fenced` where another owner changed the registration, `Unavailable` where the list never stands still.
    """
    for _ in range(_ATTEMPTS_MAX):
        listed = reader.metadata.get(log_list_key(reader.name))
        cursor = choose()
        try:
            return register(reader.metadata, reader.name, cursor, listed.version if listed else 0)
        except VersionConflict:
            found = find(reader.metadata, reader.name, cursor.name)
            if (found.version if found else 0) != cursor.version:
                raise Fenced(
                    f"cursor {cursor.name} of log {reader.name}: another owner changed its registration",
                    hint="open it again",
                ) from None
    raise Unavailable(f"log {reader.name}: its ledger list changes all the time", hint="try again")
