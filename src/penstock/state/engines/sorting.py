"""The keys of a large table in byte order, without holding the GIL for long: `sorted` would hold it until it is done."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable

import numpy as np

from penstock.state.engines.native.kernels import sort_keys
from penstock.state.engines.native.writer import PAUSE_SECONDS, TAKEN_AT_ONCE, joined, starts_of


def sorted_keys(table: Iterable[bytes]) -> list[bytes]:
    """Of a table that nobody changes meanwhile."""
    keys: list[bytes] = []
    parts: list[bytes] = []
    lens: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    left = iter(table)
    while some := list(itertools.islice(left, TAKEN_AT_ONCE)):
        keys += some
        parts.append(b"".join(some))
        lens.append(np.fromiter(map(len, some), np.int64, len(some)))
        time.sleep(PAUSE_SECONDS)
    raw = joined(parts)
    all_lens = np.concatenate(lens)
    order = sort_keys(raw.ctypes.data, starts_of(all_lens), all_lens)
    ordered: list[bytes] = []
    for first in range(0, len(keys), TAKEN_AT_ONCE):
        ordered += map(keys.__getitem__, order[first : first + TAKEN_AT_ONCE].tolist())
        time.sleep(PAUSE_SECONDS)
    return ordered
