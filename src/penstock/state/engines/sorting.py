"""The keys of a large table in byte order, without holding the GIL for long: `sorted` would hold it until it is done.

Imported when it is first needed, because its kernel needs numba, which is slow to import.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from penstock.state.engines.key_kernels import sort_keys
from penstock.state.engines.portions import KEYS_AT_ONCE, PAUSE_SECONDS

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def sorted_keys(table: Iterable[bytes]) -> list[bytes]:
    """The keys of `table`, which nobody may change meanwhile."""
    keys: list[bytes] = []
    parts: list[bytes] = []
    lens: list[Ints] = []
    left = iter(table)
    while portion := list(itertools.islice(left, KEYS_AT_ONCE)):
        keys += portion
        parts.append(b"".join(portion))
        lens.append(np.fromiter(map(len, portion), np.int64, len(portion)))
        time.sleep(PAUSE_SECONDS)
    raw = joined(parts)
    all_lens = np.concatenate(lens)
    order = sort_keys(raw.ctypes.data, starts_of(all_lens), all_lens)
    ordered: list[bytes] = []
    for first in range(0, len(keys), KEYS_AT_ONCE):
        ordered += map(keys.__getitem__, order[first : first + KEYS_AT_ONCE].tolist())
        time.sleep(PAUSE_SECONDS)
    return ordered


def joined(parts: list[bytes]) -> Bytes:
    """All parts in one buffer, copied one by one: a single join would hold the GIL until it is done."""
    whole = np.empty(max(sum(map(len, parts)), 1), np.uint8)
    at = 0
    for part in parts:
        whole[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    return whole


def starts_of(lens: Ints) -> Ints:
    """Where each of the pieces that lie back to back begins; a length below 0 takes no bytes."""
    starts = np.zeros(len(lens), np.int64)
    np.cumsum(np.maximum(lens[:-1], 0), out=starts[1:])
    return starts
