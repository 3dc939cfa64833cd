"""What all engines share: changes go into layers in memory, over the base that a checkpoint makes (overlay.py).

`LayeredEngine` has everything but checkpoints; `MemoryEngine` is an engine without them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from penstock.errors import Corruption, NotSupported
from penstock.files import Buffer
from penstock.log import StateChange
from penstock.log.frames.format import CHANGE, OP_PUT, OP_TOMBSTONE
from penstock.log.position import Position
from penstock.state.engines.engine import CheckpointInfo, Edits, Finding, Frozen, StateEngine, StateSnapshot
from penstock.state.engines.overlay import (
    MISSING,
    NO_BASE,
    ClosedLayer,
    Layer,
    LayeredSnapshot,
    Retired,
    Stack,
    Table,
    closed,
)

_LAYERS_MAX = 6  # snapshots seal layers, and each is one more place to look: above this, unpinned neighbours are folded


class FrozenLayers(Frozen):
    """The sealed layers of one moment, newest first. `generation`: of the state that they belong to."""

    def __init__(self, layers: tuple[Layer, ...], generation: int) -> None:
        self.layers = layers
        self.generation = generation


class LayeredEngine(StateEngine):
    """Everything of an engine but its checkpoints."""

    def __init__(self) -> None:
        self._closed = False
        self._lock = threading.RLock()  # reentrant: a snapshot's finalizer may run while this thread holds it
        self._retired = Retired()
        self._generation = 0  # goes up when the state is replaced: layers frozen before are refused by `write`
        self._stack = Stack((Layer(self._retired),), NO_BASE)

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

    def get_many(self, namespace: int, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:  # so that no batch is applied between two keys; what lies below never changes
            layers, base = self._stack
            tables = [table for layer in layers if (table := layer.tables.get(namespace)) is not None]
            found = [next((table[key] for table in tables if key in table), MISSING) for key in keys]
        return [base.get(namespace, key) if value is MISSING else value for key, value in zip(keys, found, strict=True)]

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
            self._begin_anew(Stack((layer,), NO_BASE))

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
        """Replaces the whole state. Lock held."""
        if self._closed:
            raise closed()
        self._generation += 1
        self._stack = stack

    def _close_stack(self) -> None:
        """Makes every later read raise `Closed`: an empty answer would be a wrong one."""
        with self._lock:
            self._closed = True
            self._stack = Stack((ClosedLayer(self._retired),), NO_BASE)

    def _seal(self) -> None:
        """Puts an empty layer before the first one, unless that is empty itself. Lock held."""
        layers, base = self._stack
        if layers[0].tables:
            self._stack = Stack((Layer(self._retired), *layers), base)

    def _fold(self) -> None:
        """Folds neighbouring layers into one where no snapshot shows them and no checkpoint will be written from them.
        Lock held."""
        layers, base = self._stack
        kept: list[Layer] = []
        for older in layers[1:]:
            if kept and not (kept[-1].frozen or older.frozen or older.pins or kept[-1].pins):
                older.fold(kept.pop(), bottom=older is layers[-1] and base.size() == 0)
            kept.append(older)
        self._stack = Stack((layers[0], *kept), base)


class MemoryEngine(LayeredEngine):
    """Layers alone, without checkpoints: for a state whose log is rewritten as its snapshot or replayed as a whole."""

    name = "memory"

    @property
    def position(self) -> Position | None:
        return None

    @property
    def damaged(self) -> Sequence[Finding]:
        return ()

    def freeze(self) -> Frozen:
        return Frozen()  # `write` refuses it, so nothing has to be sealed

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

    def scrub(self, pause: Callable[[int], None]) -> list[Finding]:
        return []

    def mend(self) -> None:
        pass

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
