"""How many changes a stopped run left in the log, for whoever reads its last lines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.log import LogReader, Position
from penstock.operations.config.model import Config
from penstock.sources.settings import Tables

if TYPE_CHECKING:
    from penstock.operations.verify.log_replay import LogHistory

COUNTING_SECONDS_MAX = 5.0  # somebody waits for the prompt of the shell


@dataclass(frozen=True, slots=True)
class RowsLeft:
    """Changes beyond the place up to which everything is at the sink; some of them may be there too. Not `complete`: there
    are more, and counting them would have taken too long."""

    rows: int
    complete: bool


def count_rows_left(
    config: Config, delivered: dict[str, str], names: Iterable[str], seconds_max: float = COUNTING_SECONDS_MAX
) -> dict[str, RowsLeft]:
    """Of each changefeed of `names`, by the position that it has delivered through. A log that cannot be read any more is
    left out: this is only for the last words of a run."""
    from penstock.operations.verify.log_replay import read_history

    until = time.monotonic() + seconds_max
    found: dict[str, RowsLeft] = {}
    try:
        with closing(LogReader.open(config.state_dir / "log")) as reader:
            history = read_history(reader)
            for name in names:
                start = reader.next(Position.parse(delivered[name]))
                filters = (config.source.tables, Tables(include=tuple(config.sinks[name].only)))
                found[name] = _count(reader, history, start, filters, until)
    except (PenstockError, OSError):
        return found
    return found


def _count(
    reader: LogReader, history: LogHistory, start: Position, filters: tuple[Tables, ...], until: float
) -> RowsLeft:
    from penstock.entries.decode import decode_entries
    from penstock.schema.changes import ChangeBatch

    rows = 0
    if start > history.complete_end:
        return RowsLeft(0, complete=True)
    entries = reader.read(start, history.complete_end)
    for change in decode_entries(
        entries, history.schemas, lambda s, t: all(one.matches(s, t) for one in filters), history.void
    ):
        if isinstance(change, ChangeBatch):
            rows += len(change)
        if time.monotonic() > until:
            return RowsLeft(rows, complete=False)
    return RowsLeft(rows, complete=True)
