"""What Spark asks of a stream, whatever it reads: offsets as the JSON that its checkpoint keeps, batches as pieces.

An offset of a log is `{"position": "L:E", "log": …}`, the position to read next and the log's UUID; one of a sink is in
sink_stream.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from penstock.errors import BadInput
from penstock.log.position import Position
from penstock.spark.tables.reading import Piece, Resolved, file_pieces
from penstock.spark.tables.streams.log_stream import LogStream
from penstock.spark.tables.streams.sink_stream import SinkOffset, SinkStream

Offset = dict[str, Any]


class TableStream(Protocol):
    """`latest` is for Spark's own statistics: None where nobody knows it cheaply."""

    def initial(self) -> Offset: ...

    def latest(self) -> Offset | None: ...

    def stop_at_end(self) -> None: ...

    def end_of_batch(self, start: Offset) -> Offset: ...

    def pieces(self, start: Offset, end: Offset) -> list[Piece]: ...

    def ack(self, end: Offset) -> None: ...

    def close(self) -> None: ...


def open_stream(resolved: Resolved) -> TableStream:
    """The stream of a log or of a sink's prefix."""
    if resolved.log is None:
        return _SinkPieces(resolved)
    return _LogPieces(resolved, resolved.log)


class _LogPieces:
    def __init__(self, resolved: Resolved, log: str) -> None:
        self._stream = LogStream(Path(log), resolved.options, resolved.target_table())
        self.stop_at_end = self._stream.stop_at_end
        self.close = self._stream.close

    def initial(self) -> Offset:
        return self._offset(self._stream.initial())

    def latest(self) -> Offset:
        return self._offset(self._stream.latest())

    def end_of_batch(self, start: Offset) -> Offset:
        return self._offset(self._stream.end_of_batch(self._position(start)))

    def pieces(self, start: Offset, end: Offset) -> list[Piece]:
        ranges = self._stream.ranges(self._position(start), self._position(end))
        return [Piece(planned=planned) for planned in ranges]

    def ack(self, end: Offset) -> None:
        self._stream.ack(self._position(end))

    def _offset(self, position: Position) -> Offset:
        return {"position": str(position), "log": self._stream.log_uuid}

    def _position(self, offset: Offset) -> Position:
        try:
            position = Position.parse(offset["position"])
        except (KeyError, ValueError, AttributeError) as error:
            raise BadInput(
                f"the checkpoint of this query is not one of a log: {str(offset)[:100]}",
                hint="give each query a checkpointLocation of its own",
            ) from error
        if offset.get("log", self._stream.log_uuid) != self._stream.log_uuid:
            raise BadInput(
                "the checkpoint of this query is one of another log: the state directory was made anew",
                hint="start with a new checkpointLocation",
            )
        return position


class _SinkPieces:
    def __init__(self, resolved: Resolved) -> None:
        self._options = resolved.options
        self._stream = SinkStream(resolved.options, resolved.target_table())
        self.stop_at_end = self._stream.stop_at_end

    def initial(self) -> Offset:
        return self._stream.initial().to_json()

    def latest(self) -> None:
        return None  # it would list the prefix once more for each batch

    def end_of_batch(self, start: Offset) -> Offset:
        return self._stream.end_of_batch(SinkOffset.from_json(start)).to_json()

    def pieces(self, start: Offset, end: Offset) -> list[Piece]:
        found = self._stream.files(SinkOffset.from_json(start), SinkOffset.from_json(end))
        versions = {version.key: version.to_json() for _, version in found}  # one text for all files of a version
        return file_pieces([(file, versions[version.key]) for file, version in found], self._options, whole=True)

    def ack(self, end: Offset) -> None:
        pass  # a sink keeps its files for every reader

    def close(self) -> None:
        pass
