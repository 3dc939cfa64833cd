"""Inner loops of this package."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compile import kernel

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # of FNV-1a, 64 bits


@kernel
def hashed_strings(data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int32], out: npt.NDArray[np.uint64]) -> None:
    """A hash of each string: row r is `data[bounds[r] : bounds[r + 1]]`."""
    for row in range(len(out)):
        value = _OFFSET
        for at in range(bounds[row], bounds[row + 1]):
            value = (value ^ np.uint64(data[at])) * _PRIME
        out[row] = value
