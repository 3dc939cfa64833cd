"""The table maps in force after some events: the next part of a split transaction must start with them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.binlog.events import split_events
from penstock.binlog.types import HEADER_BYTES, ROWS_TYPES, EventType

_STATEMENT_END = 1  # flag of a row event, after header and table id


def maps_in_force(data: npt.NDArray[np.uint8]) -> list[bytes]:
    """The TABLE_MAP events since the last statement ended; none if the next event begins a statement."""
    events = split_events(data)
    rows = np.isin(events.type, list(ROWS_TYPES))
    flags = np.zeros(len(events), np.uint8)
    flags[rows] = data[events.offset[rows] + HEADER_BYTES + 6]
    ended = np.flatnonzero(rows & (flags & _STATEMENT_END != 0))
    first = int(ended[-1]) + 1 if len(ended) else 0
    maps = np.flatnonzero(events.type[first:] == EventType.TABLE_MAP) + first
    return [
        data[o : o + s].tobytes() for o, s in zip(events.offset[maps].tolist(), events.size[maps].tolist(), strict=True)
    ]
