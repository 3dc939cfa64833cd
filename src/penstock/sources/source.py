"""What capture asks of a source: where to start, the bytes from a position on, and where the end is now.

A source delivers raw events and nothing else: it neither cuts them into transactions nor decodes rows. It can be read
again from any position that capture made durable, and gives the same bytes each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import Terminal
from penstock.schema.model import TableSchema
from penstock.sources.load import Name, TableLoad
from penstock.sources.position import SourcePosition

ANEW = (
    "start anew, with a new state_dir and a new url of each sink; source.start: snapshot then loads the tables as they are now, "
    "and of what changed in between only the result reaches the sinks"
)
_NAMED_MAX = 5  # of the tables that are refused


class SourceError(Terminal):
    """The source refuses, or lacks what is needed: the operator must act."""


def cannot_load(refused: Mapping[Name, str]) -> SourceError:
    """The error for tables that are to be loaded, and cannot be: each by name, with its reason."""
    named = [f"{'.'.join(name)} ({reason})" for name, reason in refused.items()]
    more = f", and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
    return SourceError(
        f"cannot load {', '.join(named[:_NAMED_MAX])}{more}",
        hint="give a table without one a primary key, or leave it out of the load alone (source.snapshot.tables.exclude: its changes "
        "are captured from now on) or altogether (source.tables.exclude)",
    )


@dataclass(frozen=True, slots=True)
class Chunk:
    """Complete events, back to back; none if the source only says that it is alive.

    `start` is the offset of the first byte in `file`; without a `file` the chunk continues where the last one ended.
    With `gaps` the source may leave events out, so offsets cannot be counted: `end_log_pos` says where an event ends.
    """

    data: npt.NDArray[np.uint8]
    file: str = ""
    start: int = 0
    gaps: bool = False
    idle: bool = False  # nothing follows at once: do not wait for more before appending


IDLE = Chunk(np.empty(0, np.uint8), idle=True)


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a new log starts, the tables as they are there, and those whose rows are loaded: (schema, table) → nothing done."""

    position: SourcePosition
    schemas: tuple[TableSchema, ...] = ()
    loads: Mapping[tuple[str, str], TableLoad] = field(default_factory=dict)


class Source(Protocol):
    """One source. For one thread."""

    lower_case_table_names: int
    """How its server compares table names (schema/catalog.py); known once `resume` has returned."""

    def begin(self, version: int) -> Beginning:
        """The start that the settings ask for. Capture makes it durable before it reads. Its schemas get `version`."""
        ...

    def resume(self, position: SourcePosition) -> SourcePosition:
        """Where to read on, for a position that is in the log: asked each time before `open`. The same position, or one that
        means the same in what the source is now. Raises `SourceError` where the source has another history."""
        ...

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        """The events from the start of a transaction on, after the format description in force there.

        A source without an end never stops: while nothing comes it yields `IDLE`, at least every 50 ms. A source with
        an end yields `IDLE` before it stops.
        """
        ...

    def end(self) -> SourcePosition:
        """Where the source ends now: everything committed before this call is before it."""
        ...

    def close(self) -> None: ...
