"""Bucket state: its owner (`BucketState`) and its follower in another process (`StateReader`).

The owner's changes are visible to its own reads as soon as `commit` returns, and durable when the future completes. When
that future fails, the log has stopped for good and this state is ahead of the disk: open both again. A follower sees
what is durable, frame by frame, and calls `on_frame` after it applied each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from penstock.errors import NotSupported
from penstock.files import Buffer
from penstock.log import FrameInfo, LogReader, Pending, Position, RecordLog, StateChange
from penstock.state.store import Change, StateDescriptor, StateView, Stores, TypedStore

K = TypeVar("K")
V = TypeVar("V")

OnFrame = Callable[[Position, int, tuple[StateChange, ...]], None]

_COMPACT_BYTES_MIN = 1 << 20
_COMPACT_FACTOR = 8


class StateLog(Protocol):
    """What a state needs of a log: `Log` and `RecordLog` both have it."""

    def append(
        self, data: Buffer | Sequence[Buffer], changes: Sequence[StateChange] = (), *, wait: bool = True
    ) -> Pending[Any]: ...

    def wait_for_room(self) -> None: ...

    def infos(self) -> Iterator[FrameInfo]: ...


class _LockedView(StateView):
    """Reads under the lock of the state."""

    def __init__(self) -> None:
        self._stores = Stores()
        self._lock = threading.Lock()

    def raw_get(self, descriptor: StateDescriptor[Any, Any], key: bytes) -> bytes | None:
        with self._lock:
            number = self._stores.find(descriptor)
            return None if number is None else self._stores.raw(number).data.get(key)

    def raw_scan(self, descriptor: StateDescriptor[Any, Any], prefix: bytes) -> list[tuple[bytes, bytes]]:
        with self._lock:
            number = self._stores.find(descriptor)
            return [] if number is None else self._stores.raw(number).scan(prefix)

    def store(self, descriptor: StateDescriptor[K, V]) -> TypedStore[K, V]:
        """The typed store. Raises `NotSupported` where it was written with other codecs."""
        with self._lock:
            self._stores.find(descriptor)
        return TypedStore(self, descriptor)


class BucketState(_LockedView):
    """The owner's state over its log. Thread-safe."""

    def __init__(self, log: StateLog) -> None:
        super().__init__()
        self._log = log
        self._compacting = False
        self._has_data = False
        self._unlogged: list[StateChange] = []  # registrations that ride in the next frame
        for info in log.infos():
            self._stores.apply(info.changes)
            self._has_data = self._has_data or info.data_bytes > 0

    @classmethod
    def open(cls, log: StateLog) -> BucketState:
        """Replays the log; what was durable is here when this returns."""
        return cls(log)

    def begin(self) -> Change:
        return Change()

    def commit(self, change: Change, data: Buffer | Sequence[Buffer] = b"") -> Pending[Any]:
        """Appends data and changes as one frame: both survive or neither does. The position (or number) comes once durable."""
        self._log.wait_for_room()  # not under the lock: a callback of the writer's thread may read this state
        with self._lock:
            changes: list[StateChange] = []
            for descriptor, edits in change.edits.items():
                number = self._stores.find(descriptor)
                if number is None:
                    # In memory at once: two new stores in one change must not get the same number.
                    registration = self._stores.registration(descriptor)
                    self._stores.apply([registration])
                    self._unlogged.append(registration)
                    number = self._stores.find(descriptor)
                    assert number is not None
                changes += [StateChange(number, key, value) for key, value in edits.items()]
            self._has_data = self._has_data or any(
                len(b) for b in ((data,) if isinstance(data, bytes | bytearray | memoryview) else data)
            )
            pending = self._log.append(data, [*self._unlogged, *changes], wait=False)
            self._unlogged.clear()
            self._stores.apply(changes)
            self._compact_if_large()
        return pending

    def _compact_if_large(self) -> None:
        """A record log that holds state alone is rewritten as its snapshot once it is much larger. Lock held."""
        log = self._log
        if not isinstance(log, RecordLog) or self._has_data or self._compacting or log.bytes < _COMPACT_BYTES_MIN:
            return
        snapshot = self._stores.snapshot()
        if log.bytes < _COMPACT_FACTOR * sum(len(key) + len(value or b"") for _, key, value, *_ in snapshot):
            return
        self._compacting = True

        def finish(_: Pending[int]) -> None:
            self._compacting = False

        log.rewrite_later([(b"", snapshot)]).add_done_callback(finish)


class StateReader(_LockedView):
    """Follows the state of a log from another process, read-only. One thread advances; any may read."""

    def __init__(self, reader: LogReader, on_frame: OnFrame | None) -> None:
        super().__init__()
        if not reader.complete:
            raise NotSupported(
                "the first ledgers of this log were trimmed, so its state cannot be replayed from the start",
                hint="a state checkpoint is needed; this version has none",
            )
        self._reader = reader
        self.on_frame = on_frame
        self.position = Position(reader.first.ledger_id, -1)

    @classmethod
    def open(cls, reader: LogReader, on_frame: OnFrame | None = None) -> StateReader:
        """An empty state before the log's first entry; `advance` fills it."""
        return cls(reader, on_frame)

    def advance(self, to: Position | None = None) -> Position:
        """Applies every frame up to `to` (None: the durable end), and returns how far it is. Never goes back."""
        target = self._reader.end() if to is None else to
        if target <= self.position:
            return self.position
        for position, data_bytes, changes, _ in self._reader.scan(self._reader.next(self.position), target):
            with self._lock:
                self._stores.apply(changes)
            self.position = position
            if self.on_frame is not None:
                self.on_frame(position, data_bytes, changes)
        self.position = target
        return self.position
