"""The state of a record log: all of it in memory; the log is rewritten as a snapshot once it is much larger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.clock import Clock
from penstock.files import Buffer
from penstock.log import Pending, RecordLog, StateChange
from penstock.state.changes import Change
from penstock.state.engines.opening import open_engine
from penstock.state.state import BucketState
from penstock.state.types.registry import REGISTRY_NAMESPACE, Registry

_COMPACT_BYTES_MIN = 1 << 20
_COMPACT_FACTOR = 8


class RecordLogState(BucketState):
    """See the module."""

    _log: RecordLog

    def __init__(self, log: RecordLog, clock: Clock) -> None:
        self._log = log
        self._compacting = False
        self._has_data = False
        engine = open_engine("native", None)
        registry = Registry()
        for info in log.infos():
            for change in info.changes:
                if change.namespace == REGISTRY_NAMESPACE:
                    registry.load(change.value)
            registry.check({change.namespace for change in info.changes})
            engine.apply(info.changes)
            self._has_data = self._has_data or info.data_bytes > 0
        super().__init__(engine, registry, clock)
        with engine.create_snapshot() as snapshot:
            self._live_bytes = sum(
                len(key) + len(value) for number in snapshot.namespaces() for key, value in snapshot.iterate(number)
            )

    def _make_room(self, change: Change) -> None:
        self._log.wait_for_room()  # not under the lock: a callback of the writer's thread may read this state

    def _append(self, data: Buffer | Sequence[Buffer], encoded: bytes) -> Pending[Any]:
        buffers = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
        self._has_data = self._has_data or any(map(len, buffers))
        return self._log.append(data, encoded, wait=False)

    def _apply(self, change: Change, encoded: bytes) -> None:
        for store, table in change.edits.items():
            assert store.number is not None
            for key, value in table.items():
                before = self.engine.get(store.number, key)
                self._live_bytes += (0 if value is None else len(key) + len(value)) - (
                    0 if before is None else len(key) + len(before)
                )
        super()._apply(change, encoded)
        self._compact_if_large()

    def _compact_if_large(self) -> None:
        """A record log that holds state alone is rewritten as its snapshot once it is much larger. Lock held."""
        log = self._log
        if (
            self._has_data
            or self._compacting
            or log.bytes < max(_COMPACT_BYTES_MIN, _COMPACT_FACTOR * self._live_bytes)
        ):
            return
        with self.engine.create_snapshot() as snapshot:
            changes = [
                StateChange(number, key, value)
                for number in snapshot.namespaces()
                for key, value in snapshot.iterate(number)
            ]
        self._compacting = True

        def finish(_: Pending[int]) -> None:
            self._compacting = False

        log.rewrite_later([(b"", changes)]).add_done_callback(finish)
