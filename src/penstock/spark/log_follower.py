"""The planner's view of the log: frame by frame, without the entries' data, with what each frame's state changes mean.

A follower starts with the schemas in force before its first frame. They come from the state at that position where it
can still be had, else from a later checkpoint minus the schemas that the frames up to that checkpoint made: the history
of schemas only grows, so taking away what was added gives the earlier history. The log may therefore be trimmed up to
the slowest changefeed, whichever checkpoints are kept.

A parked table is resumed by a later frame, for the frames that held it back. So a follower first looks up, at the end of
the log, what stands for parked versions, and never gives out one that was resumed before it was opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.entries.stores import SCHEMA_HISTORY, SCHEMA_RESUMED, SOURCE_OPEN, SOURCE_VOID
from penstock.log import LogReader, StateChange
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.schema.parking import VersionKey, resumed
from penstock.schema.view import SchemaAt, slot_of
from penstock.spark.plan import FrameSummary, preceding
from penstock.state import StateLost, StateReader
from penstock.state.types.registry import REGISTRY_NAMESPACE

FRAMES_MAX = 1024  # of one call to `more`: memory for planning stays small however long the log is


class LogFollower:
    """Gives the frames of a log in order, each once: from `start` on, or from the oldest state that can be had.

    `history`: all versions of before the first frame, where `keeps_history`."""

    def __init__(self, reader: LogReader, start: Position | None = None, *, keeps_history: bool = False) -> None:
        self._reader = reader
        self._resumptions = _resumptions(reader)
        try:
            state = StateReader.open(reader, at="earliest" if start is None else preceding(start))
            self.position = state.position
        except StateLost:
            if start is None:
                raise
            state = StateReader.open(reader, at="earliest")  # the oldest checkpoint, which lies after the start
            self.position = preceding(start)
        self._registry = state.registry
        history = dict(state.store(SCHEMA_HISTORY).raw.iterate())
        state.close()
        if state.position > self.position:
            for info in reader.scan(reader.next(self.position), state.position):
                for change in info.changes:
                    if self._is_of(change, SCHEMA_HISTORY.namespace):
                        history.pop(change.key, None)
        tables: Iterable[TableSchema] = (
            resumed(SCHEMA_HISTORY.decode_value(value), self._resumptions) for value in history.values()
        )  # in the order of their sequence numbers
        self.history: tuple[TableSchema, ...] = ()
        if keeps_history:
            tables = self.history = tuple(tables)
        self._in_force = {slot_of(table): table for table in tables}

    @classmethod
    def open(cls, directory: Path, start: Position | None = None, read_attempts_max: int = 3) -> LogFollower:
        return cls(LogReader.open(directory, read_attempts_max=read_attempts_max), start)

    def close(self) -> None:
        self._reader.close()

    def in_force(self) -> list[SchemaAt]:
        """The schemas in force before the first frame: the last one of each table.

        The entries that carried them are not known any more. Their positions here are made up, and keep the order in
        which the schemas were made.
        """
        ordered = sorted(self._in_force.values(), key=lambda table: table.version)
        return [SchemaAt(Position(0, number), table) for number, table in enumerate(ordered)]

    def more(self) -> Sequence[FrameSummary]:
        """The next frames; none at the durable end."""
        following = self._reader.next(self.position)
        view = next((v for v in self._reader.ledgers() if v.info.id == following.ledger_id), None)
        if view is None or view.entries <= following.entry_id:
            return ()
        last = Position(following.ledger_id, min(view.entries - 1, following.entry_id + FRAMES_MAX - 1))
        frames = []
        for position, data_bytes, changes, *_ in self._reader.scan(following, last):
            for change in changes:
                if change.namespace == REGISTRY_NAMESPACE:
                    self._registry.load(change.value)
            # Capture records with each frame the transaction that is open after it, if there is one.
            opened = any(c.value is not None and self._is_of(c, SOURCE_OPEN.namespace) for c in changes)
            schemas = tuple(schema for change in changes if (schema := self._schema_of(change)) is not None)
            void = tuple(
                SOURCE_VOID.decode_key(change.key)
                for change in changes
                if change.value is not None and self._is_of(change, SOURCE_VOID.namespace)
            )
            frames.append(FrameSummary(position, data_bytes, not opened, schemas, void, self._resumes(changes)))
        self.position = last
        return frames

    def _is_of(self, change: StateChange, store: tuple[str, int, str, str]) -> bool:
        return change.namespace in self._registry and self._registry.namespace_of(change.namespace) == store

    def _schema_of(self, change: StateChange) -> TableSchema | None:
        if change.value is None or not self._is_of(change, SCHEMA_HISTORY.namespace):
            return None
        return resumed(SCHEMA_HISTORY.decode_value(change.value), self._resumptions)

    def _resumes(self, changes: Sequence[StateChange]) -> bool:
        """Whether one of them resumes a table that was parked when this follower was opened."""
        return any(
            change.value is not None
            and self._is_of(change, SCHEMA_RESUMED.namespace)
            and SCHEMA_RESUMED.decode_key(change.key) not in self._resumptions
            for change in changes
        )


def _resumptions(reader: LogReader) -> dict[VersionKey, TableSchema]:
    """What stands for parked versions, as of the end of the log."""
    state = StateReader.open(reader)
    try:
        return {table.key: table for _, table in state.store(SCHEMA_RESUMED).items()}
    finally:
        state.close()
