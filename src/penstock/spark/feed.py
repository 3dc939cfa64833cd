"""The planner's view of the log: frame by frame, without the data, with the state that rides along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.capture.stores import SCHEMA_HISTORY, SOURCE, SOURCE_OPEN
from penstock.log import LogReader, StateChange
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaAt
from penstock.spark.plan import Frame, preceding
from penstock.state import StateReader

FRAMES_MAX = 1024  # at a time: what is planned ahead stays small, however long the log is


class LogFeed:
    """Gives the frames of a log in order, each once: from `start` on, or as far back as its state can be had."""

    def __init__(self, reader: LogReader, start: Position | None = None) -> None:
        self._reader = reader
        self._state = StateReader.open(reader, self._on_frame, "earliest" if start is None else preceding(start))
        self._open = self._state.store(SOURCE_OPEN)
        self._history = self._state.store(SCHEMA_HISTORY)
        self._frames: list[Frame] = []

    @classmethod
    def open(cls, directory: Path, start: Position | None = None) -> LogFeed:
        return cls(LogReader.open(directory), start)

    @property
    def position(self) -> Position:
        """Everything up to here was given, or came before the start."""
        return self._state.position

    def in_force(self) -> list[SchemaAt]:
        """The schemas that hold before the first frame, asked before any was given: the last one of each table.

        Which entries carried them is not known any more; they come in the order in which they were made.
        """
        tables = {(table.schema, table.table): table for _, table in self._history.items()}
        ordered = sorted(tables.values(), key=lambda table: table.version)
        return [SchemaAt(Position(0, number), table) for number, table in enumerate(ordered)]

    def more(self) -> Sequence[Frame]:
        """The next frames; none at the durable end."""
        following = self._reader.next(self._state.position)
        view = next((v for v in self._reader.ledgers() if v.info.id == following.ledger_id), None)
        if view is None or view.entries <= following.entry_id:
            return ()
        last = min(view.entries - 1, following.entry_id + FRAMES_MAX - 1)
        self._state.advance(Position(following.ledger_id, last))
        frames, self._frames = self._frames, []
        return frames

    def _on_frame(self, position: Position, data_bytes: int, changes: tuple[StateChange, ...]) -> None:
        whole = not self._open.contains(SOURCE)
        schemas = tuple(schema for change in changes if (schema := self._schema_of(change)) is not None)
        self._frames.append(Frame(position, data_bytes, whole, schemas))

    def _schema_of(self, change: StateChange) -> TableSchema | None:
        if change.value is None or change.namespace != self._history.raw.find_number():
            return None
        return SCHEMA_HISTORY.decode_value(change.value)
