"""What the owner of a state and a reader have in common: stores over an engine, found through the registry."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.arguments import check_type
from penstock.errors import Corruption, NotSupported
from penstock.log import Pending
from penstock.log.closed import ClosedPart
from penstock.state.changes import Change
from penstock.state.engines.engine import StateEngine, StateSnapshot
from penstock.state.store import Content, RawStore, TypedStore
from penstock.state.types.descriptor import Namespace, StateDescriptor, check_namespace
from penstock.state.types.evolution import Verdict, judge, refuse
from penstock.state.types.registry import BYTES, Registration, Registry

K = TypeVar("K")
V = TypeVar("V")


class Stores:
    """The stores of some content, to read. Thread-safe."""

    engine: Content

    def __init__(self, engine: Content, registry: Registry) -> None:
        self.engine = engine
        self.registry = registry
        self._lock = threading.Lock()
        self._raw: dict[Namespace, RawStore] = {}

    def store(self, descriptor: StateDescriptor[K, V]) -> TypedStore[K, V]:
        """The typed store. Raises `NotSupported` where this program cannot read what was written into it."""
        check_type("descriptor", descriptor, StateDescriptor)
        with self._lock:
            self._await_truncation()
            found = self.registry.find(descriptor.namespace)
            if found is not None:
                refuse(judge(descriptor, found))
            raw = self._raw_store(descriptor.namespace, descriptor)
        return TypedStore(raw, descriptor)

    def raw_store(self, name: str, operator: str, *, table: str = "", bucket: int = 0) -> RawStore:
        """A store of bytes without types. Raises `NotSupported` where it was written with types."""
        namespace = Namespace(table, bucket, operator, name)
        check_namespace(namespace)
        with self._lock:
            self._await_truncation()
            found = self.registry.find(namespace)
            if found is not None and found.typed:
                raise NotSupported(
                    f"store {namespace} was written as {found.key} → {found.value}, not as {BYTES} → {BYTES}",
                    hint="open it with its descriptor, and use its `raw`",
                )
            return self._raw_store(namespace, None)

    def verdict(self, descriptor: StateDescriptor[Any, Any]) -> Verdict | None:
        """Whether the descriptor can read the store: as it is, after migration, or not. None: no such store yet."""
        check_type("descriptor", descriptor, StateDescriptor)
        found = self.registry.find(descriptor.namespace)
        return None if found is None else judge(descriptor, found)

    def stores(self) -> list[Registration]:
        """Every store that the registry knows, by number."""
        with self._lock:
            return self.registry.registrations()

    def close(self) -> None:
        """Every later call on the state and its stores raises `Closed`. Closing it again does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.registry.registrations()  # raises where it is closed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_all(self, what: str, hint: str = "") -> None:
        """The engine is closed: what stands in its place refuses every call, also through the stores."""
        closed: Any = ClosedPart(what, hint)
        with self._lock:
            self.engine = self.registry = closed
            for raw in self._raw.values():
                raw.refuse(closed.refuse)

    def heal(self, error: Corruption) -> None:
        """Called by a store whose read met damage: what cannot mend itself raises it."""
        raise error

    def commit(self, change: Change) -> Pending[Any]:
        raise NotSupported("this state is read-only", hint="only the owner of the log changes it")

    def _await_truncation(self) -> None:
        """Called with the lock held by what must not meet a state that is half way back."""

    def _raw_store(self, namespace: Namespace, descriptor: StateDescriptor[Any, Any] | None) -> RawStore:
        """The one object of that store; `descriptor`: its types, where it has some. Lock held."""
        raw = self._raw.get(namespace)
        found = self.registry.find(namespace)
        if raw is None or (found is not None and not raw.follows(found)):
            raw = self._raw[namespace] = RawStore(self, namespace, found.number if found else None)
        return raw


class StateView(Stores):
    """The stores of a state as it goes on."""

    engine: StateEngine

    def snapshot(self) -> SnapshotStores:
        """All stores as of now, while writes go on: every commit is in all of them, or in none. A context manager."""
        with self._lock:
            self._await_truncation()
            return SnapshotStores(self.engine.create_snapshot(), self.registry.copy())

    def _replace(self, engine: StateEngine, registry: Registry) -> None:
        """Puts another engine and registry under the same stores. Lock held."""
        before = self.registry
        self.engine, self.registry = engine, registry
        for raw in tuple(self._raw.values()):
            found = registry.find(raw.namespace)
            if raw.number is not None:
                raw.lost = before.registration_of(raw.number)
            if found is None:
                raw.bind(None)  # a truncation took its registration back: `lost` says what its handles may read later
            elif raw.number not in (None, found.number) or not raw.follows(found):
                self._lose(raw)  # a truncation went back to another store of that name, or one came after it
            else:
                raw.bind(found.number)

    def _lose(self, raw: RawStore) -> None:
        """The store of these handles is no more, and another one has its name. Lock held."""
        raw.drop()
        del self._raw[raw.namespace]

    def _unbind_dropped(self) -> None:
        """Stores that the registry has no longer are not there for their readers either."""
        for raw in tuple(self._raw.values()):
            if raw.number is not None and raw.number not in self.registry.live():
                raw.lost = self.registry.registration_of(raw.number)
                raw.bind(None)


class SnapshotStores(Stores):
    """All stores of a state as of one moment. A context manager; reads after `close` raise `Closed`."""

    def __init__(self, snapshot: StateSnapshot, registry: Registry) -> None:
        super().__init__(_SnapshotContent(snapshot), registry)
        self._snapshot = snapshot

    def close(self) -> None:
        """Releases the state of that moment. Closing twice is fine."""
        self._snapshot.close()
        self._refuse_all("a snapshot of the state")


class _SnapshotContent:
    """A snapshot as the content of stores."""

    def __init__(self, snapshot: StateSnapshot) -> None:
        self._snapshot = snapshot
        self.get = snapshot.get

    def get_many(self, namespace: int, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(namespace, key) for key in keys]

    def create_snapshot(self) -> StateSnapshot:
        return _Borrowed(self._snapshot)


class _Borrowed(StateSnapshot):
    """A snapshot that somebody else closes."""

    def __init__(self, snapshot: StateSnapshot) -> None:
        self._snapshot = snapshot

    def get(self, namespace: int, key: bytes) -> bytes | None:
        return self._snapshot.get(namespace, key)

    def iterate(
        self, namespace: int, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._snapshot.iterate(namespace, start, end, reverse=reverse)

    def namespaces(self) -> list[int]:
        return self._snapshot.namespaces()

    def close(self) -> None:
        pass
