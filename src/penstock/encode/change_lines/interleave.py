"""Puts the lines of several tables back into the order of the log.

Each table's lines come in order, in blocks; no more than one block of each is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.encode.change_lines import kernels
from penstock.encode.change_lines.encoder import Lines
from penstock.encode.text import Bytes


def interleaved(tables: Sequence[Iterator[Lines]]) -> Iterator[Bytes]:
    """The bytes of all lines, by event, then by row. An event belongs to one table."""
    if len(tables) == 1:
        for lines in tables[0]:
            yield lines.data
        return
    heads = {i: head for i, lines in enumerate(tables) if (head := next(lines, None)) is not None}
    taken = dict.fromkeys(heads, 0)
    while heads:
        # Every table has given all its lines up to here, so nothing that belongs before them is still to come.
        bound = min(int(head.event[-1]) for head in heads.values())
        ready, over = [], []
        for i, head in heads.items():
            stop = int(np.searchsorted(head.event, bound, side="right"))
            if stop > taken[i]:
                ready.append((head, taken[i], stop))
            taken[i] = stop
            if stop == len(head):
                over.append(i)
        yield _gathered(ready)
        for i in over:  # not earlier: a block is valid until the next one is asked for
            taken[i] = 0
            following = next(tables[i], None)
            if following is None:
                del heads[i]
            else:
                heads[i] = following


def _gathered(parts: list[tuple[Lines, int, int]]) -> Bytes:
    if len(parts) == 1:
        lines, start, stop = parts[0]
        return lines.data[lines.ends[start - 1] if start else 0 : lines.ends[stop - 1]]
    event = np.concatenate([lines.event[start:stop] for lines, start, stop in parts])
    row = np.concatenate([lines.row[start:stop] for lines, start, stop in parts])
    source = np.repeat(np.arange(len(parts)), [stop - start for _, start, stop in parts])
    line = np.concatenate([np.arange(stop - start) for _, start, stop in parts])
    order = np.lexsort((row, event))
    ends, bases = [], []
    count = 0
    for lines, start, stop in parts:
        ends.append(
            np.concatenate([lines.ends[start - 1 : start] if start else np.zeros(1, np.int64), lines.ends[start:stop]])
        )
        bases.append(count + 1)
        count += stop - start + 1
    size = sum(int(one[-1] - one[0]) for one in ends)
    out = np.empty(size, np.uint8)
    addresses = np.array([lines.data.ctypes.data for lines, _, _ in parts], np.int64)
    kernels.gather(source[order], line[order], addresses, np.array(bases, np.int64), np.concatenate(ends), out)
    return out
