"""Rows of one table that came with different table maps, in parts of any size: each once, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.binlog.rows import DecodedRows
from penstock.entries.merge import LAYOUTS_MAX, in_log_order
from penstock.errors import BadInput
from tests.support.budget import EXAMPLES


def _rows(pairs: list[tuple[int, int]]) -> DecodedRows:
    event, row = np.array([e for e, _ in pairs], np.int64), np.array([r for _, r in pairs], np.uint32)
    values = pa.array([f"{e}:{r}" for e, r in pairs])
    return DecodedRows(
        np.full(len(pairs), ord("I"), np.uint8), event, row, [pa.nulls(len(pairs), pa.string())], [values]
    )


def _in_parts(pairs: list[tuple[int, int]], size: int) -> Iterator[DecodedRows]:
    for at in range(0, len(pairs), size):
        yield _rows(pairs[at : at + size])


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=30),
    st.lists(st.integers(1, 7), min_size=3, max_size=3),
)
def test_every_row_once_and_in_order(events: list[tuple[int, int]], sizes: list[int]) -> None:
    """`events`: of each event, its layout and how many rows it has."""
    layouts: list[list[tuple[int, int]]] = [[], [], []]
    for number, (layout, count) in enumerate(events):
        layouts[layout] += [(number, row) for row in range(count)]
    merged = list(in_log_order([_in_parts(rows, size) for rows, size in zip(layouts, sizes, strict=True)]))
    found = [value for part in merged for value in part.after[0].to_pylist()]
    assert found == [f"{e}:{r}" for e, r in sorted(pair for rows in layouts for pair in rows)]
    assert all(len(part) for part in merged)


def test_more_table_maps_than_a_server_has_are_refused() -> None:
    with pytest.raises(BadInput, match="table maps"):
        list(in_log_order([_in_parts([(i, 0)], 1) for i in range(LAYOUTS_MAX + 1)]))
