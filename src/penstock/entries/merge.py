"""Puts the rows of one table that were logged with different table maps back into the order of the log.

Rarely needed: the map of a table changes without a change of its schema when the server starts again with other
settings. Each layout's rows come in parts; no more than one part of each is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.binlog.rows import DecodedRows, joined_rows
from penstock.errors import BadInput

LAYOUTS_MAX = 64  # of one table version in a group of entries; servers have one or two


def in_log_order(layouts: Sequence[Iterator[DecodedRows]]) -> Iterator[DecodedRows]:
    """All rows of all layouts. An event belongs to one layout, and each layout gives its rows in order."""
    if len(layouts) > LAYOUTS_MAX:
        raise BadInput(f"{len(layouts)} different table maps for one version of a table: no server writes so many")
    if len(layouts) == 1:
        yield from layouts[0]
        return
    heads = {i: head for i, layout in enumerate(layouts) if (head := next(layout, None)) is not None}
    while heads:
        # Every layout has given all its rows up to here, so nothing that belongs before them is still to come.
        bound = min(int(head.event[-1]) for head in heads.values())
        ready = []
        for i, head in list(heads.items()):
            count = int(np.searchsorted(head.event, bound, side="right"))
            if count:
                ready.append(head.slice(0, count))
            rest = head.slice(count, len(head)) if count < len(head) else next(layouts[i], None)
            if rest is None:
                del heads[i]
            else:
                heads[i] = rest
        yield joined_rows(ready)
