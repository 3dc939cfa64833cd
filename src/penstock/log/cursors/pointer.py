"""The owner's side of a cursor's registration (registry.py): it publishes the durable mark-delete, for trim.

Publishing is rare on purpose: when the mark-delete reaches another ledger (trim removes whole ledgers), and at close.
While the metadata store is down, trim is held back, never an ack.
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
    """Thread-safe. `on_moved` is called after a later position was published."""

    def __init__(self, reader: LogReader, registered: Registered, on_moved: Callable[[], None]) -> None:
        self._reader = reader
        self._registered = registered
        self._on_moved = on_moved
        self._lock = threading.Lock()
        self._queued = False
        # Nothing is published while a reset is on its way. Two counts, each of one thread at a time: the thread that
        # commits must not wait for the lock, which is held while the metadata store is asked.
        self._resets_begun = 0
        self._resets_done = 0
        self._lost = False  # another owner changed the registration: from then on it is not ours to change

    @property
    def position(self) -> Position:
        return self._registered.mark_delete

    def publish_later(self, current: Callable[[], tuple[Position, int]]) -> None:
        """Publishes in the background, if the mark-delete reached another ledger. `current`: (mark-delete, active)."""
        if self._queued or current()[0].ledger_id <= self._registered.mark_delete.ledger_id:
            return
        self._queued = True

        def run() -> None:
            self._queued = False
            self.publish(current)

        try:
            CHORES.run(run)
        except Unavailable:  # a later position is published instead
            self._queued = False

    def publish(self, current: Callable[[], tuple[Position, int]]) -> None:
        """Publishes now. A failure is not raised: a later position is published instead, or by the next owner."""
        with self._lock:
            if self._lost or self._resets_begun != self._resets_done:
                return
            mark_delete, active_ms = current()  # after that question, else it may be a position from before a reset
            if mark_delete <= self._registered.mark_delete:
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
        """Before a reset: from here on trim keeps what comes after `position`. Nothing is published until `release`.

        Raises `Fenced`, `Unavailable`.
        """
        with self._lock:
            if self._lost:
                raise Fenced(f"cursor {self._registered.name}: another owner changed its registration")
            moved = replace(self._registered, mark_delete=min(position, self._registered.mark_delete))
            self._registered = register_beside_trim(self._reader, lambda: moved)
            self._resets_begun += 1

    def release(self) -> None:
        """A reset is durable: later positions may be published again, unless another one is on its way."""
        self._resets_done += 1


def register_beside_trim(reader: LogReader, choose: Callable[[], Registered]) -> Registered:
    """Registers what `choose` returns. Where the ledger list changed since `choose` read it (a trim came first), again.

    Raises `Fenced` where another owner changed the registration, `Unavailable` where the list changes each time.
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
