"""Arrow arrays from numpy arrays, without copying; and the error for a value that cannot be one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int32]

_ARROW_BYTES_MAX = (1 << 31) - 1


class BadValue(ValueError):
    """A value that no server writes, in this row of the walk. With a `hint`: one that servers write, and that this
    version does not read; it says how to avoid it."""

    def __init__(self, message: str, row: int = 0, *, hint: str = "") -> None:
        super().__init__(message)
        self.row = row
        self.hint = hint


def check_row(bad: int, message: str = "bytes that no server writes") -> None:
    """Raises `BadValue` for what a kernel returned: the first bad row, or -1."""
    if bad >= 0:
        raise BadValue(message, int(bad))


def check_size(total: int) -> None:
    if total > _ARROW_BYTES_MAX:
        raise BadValue(f"{total} bytes in one batch are too many")


def fixed_array(arrow: Any, places: Places, data: npt.NDArray[Any]) -> pa.Array[Any]:
    """`data` as values of this type; missing where `places` has none."""
    bitmap, nulls = _validity(places)
    return pa.Array.from_buffers(arrow, len(places), [bitmap, _buffer(data)], nulls)


def variable_array(arrow: Any, places: Places, offsets: Offsets, data: Bytes) -> pa.Array[Any]:
    bitmap, nulls = _validity(places)
    return pa.Array.from_buffers(arrow, len(places), [bitmap, _buffer(offsets), _buffer(data)], nulls)


def _buffer(array: Any) -> pa.Buffer:
    """A numpy array as Arrow memory, without copying. `Any` because the stubs do not know that arrays are buffers."""
    return pa.py_buffer(array)


def _validity(places: Places) -> tuple[pa.Buffer | None, int]:
    valid = places >= 0
    nulls = len(valid) - int(np.count_nonzero(valid))
    if nulls == 0:
        return None, 0
    return _buffer(np.packbits(valid, bitorder="little")), nulls
