"""The planner's view of the log: frame by frame, without the data, with the state that rides along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.capture.stores import SCHEMA_HISTORY, SOURCE, SOURCE_OPEN
from penstock.log import LogReader, StateChange
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.spark.plan import Frame
from penstock.state import StateReader

FRAMES_MAX = 1024  # at a time: what is planned ahead stays small, however long the log is


class LogFeed:
    """Gives the frames of a log from its first one on, in order, each once."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._state = StateReader.open(reader, self._on_frame)
        self._open_key = SOURCE_OPEN.encode_key(SOURCE)
        self._frames: list[Frame] = []

    @classmethod
    def open(cls, directory: Path) -> LogFeed:
        return cls(LogReader.open(directory))

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
        whole = self._state.raw_get(SOURCE_OPEN, self._open_key) is None
        schemas = tuple(schema for change in changes if (schema := self._schema_of(change)) is not None)
        self._frames.append(Frame(position, data_bytes, whole, schemas))

    def _schema_of(self, change: StateChange) -> TableSchema | None:
        # The frame was applied just now: a change belongs to the store that holds its very value under its key.
        if change.value is None or self._state.raw_get(SCHEMA_HISTORY, change.key) is not change.value:
            return None
        return SCHEMA_HISTORY.decode_value(change.value)
