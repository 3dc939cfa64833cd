"""Bucket state: typed stores on a log, changed together with its entries, back in milliseconds after a crash.

The owner's changes are visible to its own reads as soon as `commit` returns, and durable when the future completes.
When that future fails, this state is ahead of the disk and takes no more changes: open log and state again. What is
durable comes back at the next open: the newest good checkpoint, then the frames after it (checkpoints/recovery.py). A
log whose state was never written has no files and no threads for it.

`BucketState` has what is the same for every log: stores and commits. `LogState` (log_state.py) adds the checkpoints and
recovery of a managed log; over a record log (record_state.py) the whole state is in memory, and a rewrite of the log
takes the place of a checkpoint.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from penstock.arguments import check_callable, check_component, check_type
from penstock.clock import Clock
from penstock.errors import BadInput, Closed, Corruption, NotSupported, PenstockError, fresh
from penstock.files import Buffer
from penstock.log import Log, Pending, Position, RecordLog, StateChange
from penstock.log.closed import FORK_HINT, closed_in_children
from penstock.observe.metrics import METRICS
from penstock.state.changes import Change, ChangedStore, TypedChanges, check_change, encode
from penstock.state.checkpoints.recovery import OnProgress
from penstock.state.engines.engine import CheckpointInfo, Finding, StateEngine
from penstock.state.metrics import forget_state, watch_state
from penstock.state.reader import StateReader
from penstock.state.settings import StateSettings
from penstock.state.store import RawStore, TypedStore
from penstock.state.types.descriptor import Namespace, StateDescriptor
from penstock.state.types.evolution import judge, refuse
from penstock.state.types.registry import Registration, Registry
from penstock.state.view import StateView

K = TypeVar("K")
V = TypeVar("V")

_DROPPED_AT_ONCE = 10_000  # keys of a dropped store that one frame deletes
_TIMED_EVERY = 16  # one commit in so many is timed


@dataclass(slots=True, eq=False)
class _Leftovers:
    """The keys of a store that was dropped, which a change deletes."""

    holder: BucketState
    namespace: Namespace
    number: int | None

    @property
    def dropped(self) -> bool:
        """True: nothing is left to delete, because a truncation took the drop back, and the keys belong to the store
        that is there again. The registry knows, and a commit asks while it holds the lock."""
        found = None if self.number is None else self.holder.registry.registration_of(self.number)
        return found is None or not found.dropped

    def bind(self, number: int) -> None: ...


class BucketState(StateView):
    """The owner's state over its log. Thread-safe. Made by `open`.

    Each subclass is for one kind of log and names it: `class LogState(BucketState, of=Log)`. That is how `open` finds
    them without importing modules that stand below this one; `penstock.state` imports them all.
    """

    _subclasses: ClassVar[list[tuple[type, type[BucketState]]]] = []

    def __init_subclass__(cls, *, of: type, **options: Any) -> None:
        super().__init_subclass__(**options)
        BucketState._subclasses.append((of, cls))

    @classmethod
    def open(
        cls,
        log: Log | RecordLog,
        settings: StateSettings | None = None,
        progress: OnProgress | None = None,
        clock: Clock | None = None,
    ) -> BucketState:
        """The state with everything that is durable. `progress` is called with how far a long recovery is.

        Raises `StateLost` where neither a checkpoint nor the log holds all of it, and `BadInput` where this process has
        the state of this log open already. The state is closed with its log.
        """
        check_type("settings", settings, StateSettings, optional=True)
        check_callable("progress", progress, optional=True)
        check_component("clock", clock, "wall_ms", optional=True)
        for kind, subclass in cls._subclasses:
            if isinstance(log, kind):
                state = subclass._open(log, settings or StateSettings(), progress, clock)
                try:
                    state._finish_drops()
                except BaseException:
                    state.close()  # else nobody could open the state of this log again
                    raise
                return state
        raise BadInput(f"a {type(log).__name__} can have no state", hint="give a Log or a RecordLog")

    @classmethod
    def _open(cls, log: Any, settings: StateSettings, progress: OnProgress | None, clock: Clock | None) -> Self:
        raise NotImplementedError

    def __init__(self, engine: StateEngine, registry: Registry, clock: Clock) -> None:
        super().__init__(engine, registry)
        self._clock = clock
        self._unlogged: list[StateChange] = []  # registrations that the next frame will carry
        self._broken: PenstockError | None = None
        self._closed = False
        self._forked = False
        self._commits = 0
        self._reads_of_dropped = 0
        self.wal_bytes = 0
        self.writes = 0
        watch_state(self)
        closed_in_children(self)

    def begin(self) -> Change:
        return Change()

    def get_or_create_store(self, descriptor: StateDescriptor[K, V]) -> TypedStore[K, V]:
        """The store; a new one is registered in the frame of the next commit.

        Raises `NotSupported` where this program cannot read what was written into it.
        """
        return self.store(descriptor)

    def store(self, descriptor: StateDescriptor[K, V]) -> TypedStore[K, V]:
        """As `get_or_create_store`."""
        return super().store(descriptor)

    def raw_store(self, name: str, operator: str, *, table: str = "", bucket: int = 0) -> RawStore:
        """A store of bytes without types; a new one is registered in the frame of the next commit."""
        return super().raw_store(name, operator, table=table, bucket=bucket)

    def drop_store(self, store: RawStore | TypedStore[Any, Any]) -> Pending[Any]:
        """Drops the store with all that is in it; a store of that name which is opened later is a new, empty one. The
        handles that there are stay with the dropped one: they find nothing, and their commits raise `BadInput`.

        (1) A frame says that it was dropped: from here on it is gone, also after a crash. (2) Frames delete its keys, in
        portions; where a crash comes between, the next open goes on. The number of the store is never given again. The
        result is there once all of that is durable.
        """
        check_type("store", store, (RawStore, TypedStore))
        raw = store.raw if isinstance(store, TypedStore) else store
        with self._lock:
            self._check()
            if raw.holder is not self or raw.number is None:
                raise BadInput(f"store {raw.namespace} is not there", hint="use a store of this state")
            dropped = self.registry.drop(raw.namespace)
            self._unlogged += dropped.dropping()
            raw.drop()
            self._raw.pop(raw.namespace, None)
            self._reads_of_dropped += raw.reads
        pending = self.commit(Change())
        return self._empty(dropped) or pending

    def commit(self, change: Change, data: Buffer | Sequence[Buffer] = b"") -> Pending[Any]:
        """Appends data and changes as one frame: both survive a crash, or neither does.

        The result is the position (of a record log: the number) of the frame, once it is durable.
        """
        check_change(change)
        self._before_commit(change)
        timed = self._commits % _TIMED_EVERY == 0
        started = time.perf_counter() if timed else 0.0
        with self._lock:
            self._check()
            for store in change.edits:
                if getattr(store, "holder", None) is not self:
                    name = getattr(store, "namespace", "")
                    raise BadInput(f"store {name} belongs to another state", hint="use a store of this one")
                if store.dropped:
                    raise BadInput(
                        f"store {store.namespace} was dropped", hint="open it again: that is a new, empty one"
                    )
            for typed in change.typed:
                self._register_schema(typed)
            for store in change.edits:
                if store.number is None:  # a truncation took the registration back, and nothing says the codecs
                    raise BadInput(f"store {store.namespace} is not there any more", hint="open it again")
            encoded = encode(change, self._unlogged, self._clock.wall_ms())
            pending = self._append(data, encoded)
            if self._unlogged:
                self.engine.apply(self._unlogged)
                self._unlogged = []
            self._apply(change, encoded)
            self._commits += 1
            self.wal_bytes += len(encoded)
            self.writes += sum(map(len, change.edits.values()))
        if timed:
            METRICS.state_write_seconds.observe(time.perf_counter() - started)
        return pending

    def close(self) -> None:
        """Every later call on it and its stores raises `Closed`. The log stays open. Closing it again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._await_truncation()
            self._closed = True
            self._broken = self._broken or Closed("the state is closed")
        forget_state(self)
        self.engine.close()
        self._refuse_all("the state")

    def forked(self) -> None:
        """In a forked child, which does not own it; a thread that it does not have may hold its locks. Every later call
        raises `Closed`, and `close` does nothing."""
        self._forked = self._closed = True
        self._lock = threading.Lock()
        self._broken = Closed("the state is closed", hint=FORK_HINT)
        self._refuse_all("the state", FORK_HINT)

    @property
    def size_bytes(self) -> int:
        """About how many bytes keys and values have."""
        return self.engine.estimate_size()

    @property
    def reads(self) -> int:
        return self._reads_of_dropped + sum(raw.reads for raw in tuple(self._raw.values()))

    # -- inside --------------------------------------------------------------------------------------------------

    def _finish_drops(self) -> None:
        """Step (2) of the drops that a crash came between."""
        for dropped in self.registry.dropped():
            self._empty(dropped)

    def _empty(self, dropped: Registration) -> Pending[Any] | None:
        """Deletes what a dropped store still has. None where that is nothing."""
        try:
            return self._delete_leftovers(dropped)
        except Corruption as error:  # this is a read, and may be the first that meets a damaged page
            self.heal(error)
            return self._delete_leftovers(dropped)

    def _delete_leftovers(self, dropped: Registration) -> Pending[Any] | None:
        store = _Leftovers(self, dropped.namespace, dropped.number)
        last: Pending[Any] | None = None
        with self.engine.create_snapshot() as snapshot:
            keys = (key for key, _ in snapshot.iterate(dropped.number))
            while portion := list(itertools.islice(keys, _DROPPED_AT_ONCE)):
                change = Change()
                change.edits[store] = dict.fromkeys(portion)
                try:
                    last = self.commit(change)
                except BadInput:
                    if not store.dropped:
                        raise
                    break  # a truncation took the drop back
        return last

    def _check(self) -> None:
        """Raises where no change can be made any more. Lock held."""
        self._await_truncation()
        if self._broken is not None:
            raise fresh(self._broken)

    def _raw_store(self, namespace: Namespace, descriptor: StateDescriptor[Any, Any] | None) -> RawStore:
        """Registers the store, where it is new. Handles of an earlier store of that name, whose registration a
        truncation took back, stay behind where they would read the new one wrongly. Lock held."""
        if self.registry.find(namespace) is not None:
            return super()._raw_store(namespace, descriptor)
        registry = self.registry
        new = registry.register_bytes(namespace) if descriptor is None else registry.register(descriptor)
        before = self._raw.get(namespace)
        if before is not None and not before.follows(new):
            self._lose(before)
        raw = super()._raw_store(namespace, descriptor)
        self._registered(raw, new.number, new.change())
        return raw

    def _registered(self, raw: ChangedStore, number: int, change: StateChange) -> None:
        """The store has its number in memory at once, before the registration is logged: two new stores in one change
        must not get the same number. Lock held."""
        raw.bind(number)
        self._unlogged.append(change)

    def _register_schema(self, typed: TypedChanges) -> None:
        """Enters the store's schema version into the registry, where it is new; and the store itself, where a
        truncation took its registration back. Lock held."""
        raw, descriptor = typed.raw, typed.descriptor
        if raw.number is None:
            new = self.registry.register(descriptor)
            self._registered(raw, new.number, new.change())
        elif found := self.registry.find(descriptor.namespace):
            refuse(judge(descriptor, found))  # a truncation may have put another registration in place of the one seen
        registration = self.registry.add_schema(descriptor)
        if registration is not None:
            self._unlogged.append(registration.change())
        typed.known_to = self.registry

    def _apply(self, change: Change, encoded: bytes) -> None:
        edits = {store.number: table for store, table in change.edits.items()}
        self.engine.apply_edits(edits, len(encoded))  # type: ignore[arg-type]

    def _before_commit(self, change: Change) -> None:
        """Waits until the log takes an append. Called without the lock: a callback of the log's writer thread may read
        this state while a commit waits."""
        raise NotImplementedError

    def _append(self, data: Buffer | Sequence[Buffer], encoded: bytes) -> Pending[Any]:
        raise NotImplementedError

    # -- what the state of a record log does not have --------------------------------------------------------------

    def checkpoint(self) -> CheckpointInfo | None:
        """Writes a checkpoint of everything that is durable now. None where there is nothing to write."""
        raise _not_here("checkpoint")

    def checkpoints(self) -> list[CheckpointInfo]:
        """The checkpoints that are kept, newest first."""
        return self.engine.checkpoints()

    def scrub(self) -> list[Finding]:
        """Reads every byte of the checkpoints from the disk, and mends what is damaged. Returns what was; `StateLost`
        where neither parity nor another checkpoint nor the log can mend it."""
        raise _not_here("scrub")

    def recover(self, to: Position, progress: OnProgress | None = None) -> StateReader:
        """The state after every entry up to and including `to`, read-only. The caller closes it."""
        raise _not_here("recovery to a position")

    def truncate(self, position: Position, *, force: bool = False) -> None:
        """Takes log and state back to `position`: the entries after it are removed, and their changes with them."""
        raise _not_here("truncation")


def _not_here(what: str) -> NotSupported:
    return NotSupported(f"a state over a record log has no {what}", hint="its log is rewritten instead")
