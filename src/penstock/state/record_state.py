"""The state of a record log, all of it in memory. The log is rewritten as a snapshot once it is much larger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.files import Buffer
from penstock.log import Pending, RecordLog, StateChange
from penstock.state.changes import Change
from penstock.state.checkpoints.recovery import OnProgress
from penstock.state.engines.opening import open_engine
from penstock.state.settings import StateSettings
from penstock.state.state import BucketState
from penstock.state.types.registry import REGISTRY_NAMESPACE, Registry

_COMPACT_BYTES_MIN = 1 << 20  # a smaller log is read in a moment
_COMPACT_FACTOR = 8  # times the bytes of live keys and values: so each byte is rewritten rarely


class RecordLogState(BucketState, of=RecordLog):
    """See the module. It has no settings, and no progress to report: a record log is small."""

    _log: RecordLog

    @classmethod
    def _open(cls, log: RecordLog, settings: StateSettings, progress: OnProgress | None, clock: Clock | None) -> Self:
        return cls(log, clock or SYSTEM_CLOCK)

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

    def _before_commit(self, change: Change) -> None:
        self._log.wait_for_room()

    def _append(self, data: Buffer | Sequence[Buffer], encoded: bytes) -> Pending[Any]:
        pending = self._log.append(data, encoded, wait=False, encoded=True)
        buffers = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
        self._has_data = self._has_data or any(map(len, buffers))
        return pending

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
        """Rewrites the log as a snapshot of the state, where it has grown far beyond one. Not where entries have data:
        a snapshot would drop it. Lock held."""
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
