"""The part of an engine that is the same for all: changes go into layers in memory, over the base of a checkpoint (overlay.py).

`MemoryEngine` is that part alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from penstock.errors import Corruption, NotSupported
from penstock.files import Buffer
from penstock.log import StateChange
from penstock.log.frames.format import CHANGE, OP_PUT, OP_TOMBSTONE
from penstock.log.position import Position
from penstock.state.engines.engine import CheckpointInfo, Edits, Finding, Frozen, StateEngine, StateSnapshot
from penstock.state.engines.overlay import (
    MISSING,
    NO_BASE,
    Base,
    ClosedLayer,
    Layer,
    LayeredSnapshot,
    Retired,
    Stack,
    Table,
    closed,
)

_LAYERS_MAX = 6  # sealed by snapshots: beyond it those that nobody pins are folded into one


class FrozenLayers(Frozen):
    """`layers` as they were, newest first; `generation`: of the state that they belong to."""

    def __init__(self, layers: tuple[Layer, ...], generation: int) -> None:
        self.layers = layers
        self.generation = generation


class LayeredEngine(StateEngine):
    """Everything of an engine but its checkpoints."""

    def __init__(self, empty: Base) -> None:
        """`empty`: a base with nothing in it."""
        self._empty = empty
        self._closed = False
        self._lock = threading.RLock()  # a finalizer may come while this thread has it
        self._retired = Retired()
        self._generation = 0  # counts what makes older frozen layers void
        self._stack = Stack((Layer(self._retired),), empty)

    @property
    def changed_bytes(self) -> int:
        return sum(layer.bytes for layer in self._stack.layers)

    def apply(self, changes: Sequence[StateChange]) -> None:
        edits: dict[int, Table] = {}
        size = 0
        for namespace, key, value, _, _ in changes:
            table = edits.get(namespace)
            if table is None:
                table = edits[namespace] = {}
            table[key] = value
            size += len(key) + (len(value) if value is not None else 0)
        self.apply_edits(edits, size)

    def apply_edits(self, edits: Edits, size: int | None = None) -> None:
        if size is None:
            size = sum(
                sum(map(len, table)) + sum(len(v) for v in table.values() if v is not None) for table in edits.values()
            )
        with self._lock:
            layers, base = self._stack
            bottom = len(layers) == 1 and base.size() == 0
            layer = layers[0]
            for namespace, table in edits.items():
                layer.put(namespace, table, bottom=bottom)  # type: ignore[arg-type]
            layer.bytes += size

    def apply_encoded(self, changes: Buffer) -> int:
        raw = bytes(changes)
        edits: dict[int, Table] = {}
        at, end, count, size = 0, len(raw), 0, 0
        unpack, head = CHANGE.unpack_from, CHANGE.size
        namespace, table = -1, {}
        while at < end:
            if at + head > end:
                raise Corruption("state changes end in the middle")
            number, operation, _, _, _, _, key_len, value_len = unpack(raw, at)
            if number != namespace:
                namespace, table = number, edits.setdefault(number, {})
            key_at = at + head
            value_at = key_at + key_len
            at = value_at + value_len
            if at > end:
                raise Corruption("state changes end in the middle")
            if operation == OP_PUT:
                table[raw[key_at:value_at]] = raw[value_at:at]
            elif operation == OP_TOMBSTONE and value_len == 0:
                table[raw[key_at:value_at]] = None
            else:
                raise NotSupported(
                    f"state operation {operation} is not known", hint="a newer Penstock wrote it: upgrade"
                )
            count += 1
            size += key_len + value_len
        self.apply_edits(edits, size)
        return count

    def get(self, namespace: int, key: bytes) -> bytes | None:
        layers, base = self._stack
        for layer in layers:
            table = layer.tables.get(namespace)
            if table is not None and (value := table.get(key, MISSING)) is not MISSING:
                return value
        getter = base.getters.get(namespace)
        if getter is not None and (found := getter(key)) is not ...:
            return found
        return base.get(namespace, key)

    def create_snapshot(self) -> StateSnapshot:
        with self._lock:
            self._seal()
            if len(self._stack.layers) > _LAYERS_MAX:
                self._fold()
            layers = self._stack.layers[1:]
            for layer in layers:
                layer.pins += 1
            return LayeredSnapshot(layers, self._stack.base, self._lock)

    def restore_from_snapshot(self, snapshot: StateSnapshot) -> None:
        layer = Layer(self._retired)
        for namespace in snapshot.namespaces():
            table: Table = dict(snapshot.iterate(namespace))
            if table:
                layer.tables[namespace] = table
                layer.bytes += sum(map(len, table)) + sum(len(value or b"") for value in table.values())
        with self._lock:
            self._begin_anew(Stack((layer,), self._empty))

    def freeze(self) -> Frozen:
        with self._lock:
            self._seal()
            layers = self._stack.layers[1:]
            for layer in layers:
                layer.frozen = True
            return FrozenLayers(layers, self._generation)

    def estimate_size(self) -> int:
        layers, base = self._stack
        return base.size() + sum(layer.bytes for layer in layers)

    def _begin_anew(self, stack: Stack) -> None:
        """The state is another one from here on. Lock held."""
        if self._closed:
            raise closed()
        self._generation += 1
        self._stack = stack

    def _close_stack(self) -> None:
        """Reads raise `Closed` from here on: an empty state in silence would be a lie."""
        with self._lock:
            self._closed = True
            self._stack = Stack((ClosedLayer(self._retired),), self._empty)

    def _seal(self) -> None:
        layers, base = self._stack
        if layers[0].tables:
            self._stack = Stack((Layer(self._retired), *layers), base)

    def _fold(self) -> None:
        """Neighbours that no snapshot tells apart, and no checkpoint waits for, become one. Lock held."""
        layers, base = self._stack
        kept: list[Layer] = []
        for older in layers[1:]:
            if kept and not (kept[-1].frozen or older.frozen or older.pins or kept[-1].pins):
                older.fold(kept.pop(), bottom=older is layers[-1] and base.size() == 0)
            kept.append(older)
        self._stack = Stack((layers[0], *kept), base)


class MemoryEngine(LayeredEngine):
    """The overlay alone: a state whose log is rewritten instead, or is replayed whole. No checkpoints."""

    name = "memory"

    def __init__(self) -> None:
        super().__init__(NO_BASE)

    @property
    def position(self) -> Position | None:
        return None

    @property
    def damaged(self) -> Sequence[Finding]:
        return ()

    def freeze(self) -> Frozen:
        return Frozen()  # nobody could write it: nothing is sealed

    def write(self, frozen: Frozen, position: Position) -> CheckpointInfo:
        raise NotSupported("a state without a directory has no checkpoints", hint="open it with a directory")

    def checkpoints(self) -> list[CheckpointInfo]:
        return []

    def drop_after(self, position: Position) -> Position | None:
        with self._lock:
            self._begin_anew(Stack((Layer(self._retired),), NO_BASE))
        return None

    def verify(self) -> Iterator[Finding]:
        return iter(())

    def flush(self) -> None:
        pass

    def compact(self) -> None:
        with self._lock:
            self._seal()
            self._fold()
        self._retired.drain()

    def close(self) -> None:
        self._close_stack()
        self._retired.drain()
