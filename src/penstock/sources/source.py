"""What capture asks of a source: a place to start, the bytes from a place on, and where the end is now.

A source delivers raw events and nothing else: it neither cuts transactions nor decodes rows. It may be read again from any
position that capture made durable, and gives the same bytes each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import Terminal
from penstock.schema.model import TableSchema
from penstock.sources.position import SourcePosition


class SourceError(Terminal):
    """The source refuses, or cannot give what is needed: the operator must act."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole events back to back; none where the source only says that it is alive.

    `start` is the offset of the first byte in `file`; where `file` is empty, the chunk goes on where the last one ended.
    With `gaps` the source leaves events out, so that `end_log_pos` is needed to tell where the next one stands.
    """

    data: npt.NDArray[np.uint8]
    file: str = ""
    start: int = 0
    gaps: bool = False
    idle: bool = False  # nothing follows at once: whatever waits for more may go out now


IDLE = Chunk(np.empty(0, np.uint8), idle=True)


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a new log starts, and the tables as they are there."""

    position: SourcePosition
    schemas: tuple[TableSchema, ...] = ()


class Source(Protocol):
    """One source. Used by one thread."""

    def begin(self, version: int) -> Beginning:
        """The start that the settings ask for. Made durable before anything is read. `version` is for its schemas."""
        ...

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        """The events from a transaction's start on, the format description in force first.

        Never ends by itself for a source that goes on: it yields `IDLE` at least every 50 ms where nothing comes. A source
        that has an end yields `IDLE` before it ends.
        """
        ...

    def end(self) -> SourcePosition:
        """Where the source ends now: everything committed before this call is before it."""
        ...

    def close(self) -> None: ...
