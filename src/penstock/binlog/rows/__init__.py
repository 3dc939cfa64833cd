"""Row events → Arrow columns, many events at once, without Python per row.

| module | job |
|---|---|
| `decode.py` | row events of one layout → batches of columns: what callers use |
| `presence.py` | which columns an image has: absent is not NULL |
| `plan.py`, `fixed.py`, `texts.py`, `addresses.py`, `arrays.py` | what becomes of each column |
| `row_events.py`, `scratch.py` | the events of a layout; where a walk notes its rows |
| `layouts.py`, `walk.py` | kernels over events: the table map of each, the place of every value |
| `values.py`, `old_temporal.py`, `text_kernels.py` | kernels over a column |
"""

from __future__ import annotations

from penstock.binlog.rows.decode import (
    BATCH_BYTES_MAX,
    DecodedRows,
    RowGroups,
    count_rows,
    decode_rows,
    group_rows,
    joined_rows,
)
from penstock.binlog.rows.presence import Presence, joined_presence

__all__ = [
    "BATCH_BYTES_MAX",
    "DecodedRows",
    "Presence",
    "RowGroups",
    "count_rows",
    "decode_rows",
    "group_rows",
    "joined_presence",
    "joined_rows",
]
