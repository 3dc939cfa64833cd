"""Which rows of two tables differ, column by column, without Python per row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.encode.images import differs

Mask = npt.NDArray[np.bool_]


def different_rows(want: pa.Table, have: pa.Table, names: list[str]) -> Mask:
    """For each row whether one of the columns differs. A column that `have` lacks differs in every row."""
    found = np.zeros(want.num_rows, np.bool_)
    for name in names:
        found |= different_values(want, have, name)
    return found


def different_values(want: pa.Table, have: pa.Table, name: str) -> Mask:
    """For each row whether it has another value in this column."""
    count = want.num_rows
    if name not in have.column_names:
        return np.ones(count, np.bool_)
    one, other = want.column(name), have.column(name)
    if one.equals(other) and not pa.types.is_floating(one.type):  # a zero and a minus zero are equal
        return np.zeros(count, np.bool_)
    if one.type != other.type:
        try:
            other = other.cast(one.type)
        except pa.ArrowException:
            return np.ones(count, np.bool_)
    return differs(_whole(one), _whole(other))


def _whole(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    return pa.concat_arrays(column.chunks)
