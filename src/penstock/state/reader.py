"""The state of a log from another process, read-only: opened at a checkpoint, then advanced frame by frame.

A reader sees what is durable. It needs a checkpoint at or below its position and the frames after that checkpoint, not
the whole log. When the log was truncated below its position, the next `advance` takes the reader back too; when it was
trimmed beyond it, the next `advance` begins with a checkpoint again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from penstock.arguments import check_callable, check_type
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import Closed, Corruption
from penstock.log import LogReader, Position, StateChange, Trimmed
from penstock.log.frames.format import decode_changes
from penstock.log.ledgers.holds import pins
from penstock.log.position import check_position
from penstock.state.checkpoints.recovery import (
    START_PIN,
    OnProgress,
    Recovered,
    StateLocation,
    StateLost,
    holds_entry,
    recover,
    refuse_skipped,
)
from penstock.state.engines.engine import CheckpointInfo
from penstock.state.settings import StateSettings
from penstock.state.types.registry import REGISTRY_NAMESPACE, unregistered
from penstock.state.view import StateView

OnFrame = Callable[[Position, int, tuple[StateChange, ...]], None]

# The owner may remove a checkpoint while it is being opened, or trim the frames after it: then the next one is tried.
_OPEN_ATTEMPTS = 5
# A change begins with its namespace, and registrations come first in a frame: a frame has some if it begins like this.
_REGISTRY_FIRST = REGISTRY_NAMESPACE.to_bytes(8, "little")


class StateReader(StateView):
    """The state at `position`. One thread at a time advances it; any thread reads. Made by `open`."""

    def __init__(
        self, location: StateLocation, recovered: Recovered, position: Position, on_frame: OnFrame | None
    ) -> None:
        super().__init__(recovered.engine, recovered.registry)
        self._location = location
        self._reader = location.reader
        self._advancing = threading.RLock()
        self._closed = False
        self.on_frame = on_frame
        self.position = position

    @classmethod
    def open(
        cls,
        reader: LogReader,
        on_frame: OnFrame | None = None,
        at: Position | Literal["earliest"] | None = None,
        *,
        settings: StateSettings | None = None,
        progress: OnProgress | None = None,
    ) -> StateReader:
        """The state after every entry up to and including `at`. None: at the durable end; "earliest": as far back as
        there is one, which in a complete log is before the first entry.

        `advance` takes it further, and calls `on_frame(position, data bytes, changes)` after each frame that it
        applied. Raises `StateLost` where the state at that position is not there any more.
        """
        check_type("reader", reader, LogReader)
        check_callable("on_frame", on_frame, optional=True)
        check_type("settings", settings, StateSettings, optional=True)
        check_callable("progress", progress, optional=True)
        if at is not None and not (isinstance(at, str) and at == "earliest"):
            check_position("at", at)
        location = StateLocation(reader, reader.files, SYSTEM_CLOCK, settings or StateSettings(), read_only=True)

        def place() -> Position:
            reader.refresh()
            return reader.end() if at is None else _earliest(location) if isinstance(at, str) else at

        return cls(location, *_recover(location, place, progress), on_frame)

    def advance(self, to: Position | None = None) -> Position:
        """Applies every frame up to and including `to` (None: the durable end), and returns the position reached.

        Goes back only where the log was truncated. Where frames that were still to come were trimmed, the state is taken
        from a checkpoint; with `on_frame`, which would miss them, raises `StateLost`.
        """
        if to is not None:
            check_position("to", to)
        with self._advancing:
            if self._closed:
                raise Closed("a reader of the state is closed")
            target = self._reader.end() if to is None else to
            if self.position.entry_id >= 0 and not holds_entry(self._reader, self.position):
                self._rebuild(lambda: min(target, self._reader.end()))
            if target <= self.position:
                return self.position
            start = self._reader.next(self.position)
            if self._may_miss_frames():  # asked after `next`, which passes over what is gone
                self._pass_over_trimmed(to)
                return self.position
            refuse_skipped(self._reader, start, target)
            frames = self._reader.scan_encoded(start, target)
            while True:
                try:
                    position, header, raw = next(frames)
                except StopIteration:
                    break
                except Trimmed:  # in this moment, by the owner
                    self._pass_over_trimmed(to)
                    return self.position
                changes: tuple[StateChange, ...] = ()
                if raw and (self.on_frame is not None or raw[:8] == _REGISTRY_FIRST):
                    changes = decode_changes(raw, header.wall_ms)
                if raw:
                    with self._lock:  # a snapshot has the registrations of a frame and its other changes, or neither
                        self._check_namespaces(changes)
                        self.engine.apply_encoded(raw)
                self.position = position
                if self.on_frame is not None:
                    self.on_frame(position, header.data_len, changes)
            self.position = target
            return self.position

    def _may_miss_frames(self) -> bool:
        """Whether frames after the position were trimmed, as far as the log knows."""
        if self.position.ledger_id >= self._reader.trimmed_below:
            return False
        trimmed = self._reader.trimmed_to
        return trimmed is None or self.position < trimmed

    def _pass_over_trimmed(self, to: Position | None) -> None:
        """Frames that were still to come were trimmed."""
        if self.on_frame is not None:
            raise StateLost(
                f"frames after {self.position} were trimmed, and this reader is to be told of each of them",
                hint="pin the log, or open the reader anew",
            )
        self._rebuild(self._reader.end if to is None else lambda: to)

    def heal(self, error: Corruption) -> None:
        damaged = self.engine
        with self._advancing:
            if self.engine is damaged:
                self._rebuild(lambda: self.position, verify=True)

    def close(self) -> None:
        """Releases the checkpoint's files. The log's reader stays open. Every later call raises `Closed`."""
        with self._advancing:
            if not self._closed:
                self._closed = True
                self.engine.close()
                self._refuse_all("a reader of the state")

    def _check_namespaces(self, changes: tuple[StateChange, ...]) -> None:
        """Enters registrations into the registry. Raises `Corruption` where a change names an unregistered store. Lock
        held."""
        for change in changes:
            if change.namespace == REGISTRY_NAMESPACE:
                self.registry.load(change.value)
                self._unbind_dropped()
            elif change.namespace not in self.registry:
                raise unregistered(change.namespace)

    def _rebuild(self, place: Callable[[], Position], *, verify: bool = False) -> None:
        """Recovers the state at that place anew, and puts it under the stores."""
        old = self.engine
        recovered, position = _recover(self._location, place, None, verify=verify)
        with self._lock:
            self._replace(recovered.engine, recovered.registry)
        self.position = position
        old.close()


def _earliest(location: StateLocation) -> Position:
    reader = location.reader
    start = Position(reader.first.ledger_id, -1)
    if reader.complete or START_PIN in pins(reader.metadata, reader.name):
        return start
    return min((info.position for info in find_checkpoints(location)), default=start)


def find_checkpoints(location: StateLocation) -> list[CheckpointInfo]:
    """Every good checkpoint of a state, newest first. The caller need not own the state.

    A read-only engine shows one checkpoint alone, so one is opened after the other, each below the last.
    """
    found: list[CheckpointInfo] = []
    at: Position | None = None
    while True:
        with location.open_engine(at=at) as engine:
            newest = engine.checkpoints()[:1]
        if not newest:
            return found
        found += newest
        at = Position(newest[0].position.ledger_id, newest[0].position.entry_id - 1)


def _recover(
    location: StateLocation, place: Callable[[], Position], progress: OnProgress | None, *, verify: bool = False
) -> tuple[Recovered, Position]:
    """The state at `place`, and where that is: asked again in each attempt, as the end and the earliest state move on."""
    for attempt in range(_OPEN_ATTEMPTS):
        try:
            to = place()
            return recover(location, to, progress, verify=verify), to
        except (StateLost, FileNotFoundError, Trimmed):
            if attempt + 1 == _OPEN_ATTEMPTS:
                raise
    raise AssertionError
