"""Large buffers that are used again: a new one costs as much as filling it, because the system clears each of its pages."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

KEPT_MAX = 4


class Buffers:
    """Buffers of at least `size` bytes. A frame keeps its buffer for as long as it needs the bytes, by having it: the one
    that only the list has is free."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: list[npt.NDArray[np.uint8]] = []

    def take(self, size: int = 0) -> npt.NDArray[np.uint8]:
        """A buffer that nobody has, of `size` bytes or more. What it contains is not said."""
        if size > self._size:
            return np.empty(size, np.uint8)
        for number in range(len(self._kept)):
            if _references(self._kept, number) == _OWN_REFERENCES:
                return self._kept[number]
        made = np.empty(self._size, np.uint8)
        if len(self._kept) < KEPT_MAX:
            self._kept.append(made)
        return made


def _references(kept: list[npt.NDArray[np.uint8]], number: int) -> int:
    return sys.getrefcount(kept[number])


_OWN_REFERENCES = _references([np.empty(0, np.uint8)], 0)  # where only the list has it, as this Python counts
