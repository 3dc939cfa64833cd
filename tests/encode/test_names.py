"""Members of a SET by their names, as a server prints them."""

from __future__ import annotations

import pyarrow as pa

from penstock.encode.names import set_names
from penstock.schema.model import Column


def test_members_that_are_empty_texts() -> None:
    """A comma stands only where something is before it. A byte was kept for each, and had what was in memory before."""
    column = Column("s", "set('','a','','d')", elements=("", "a", "", "d"))
    values = pa.array([0, 1, 2, 3, 4, 5, 6, 8, 12, 14, 15, None, 9], pa.uint64())
    printed = ["", "", "a", "a", "", "", "a,", "d", "d", "a,,d", "a,,d", None, "d"]
    assert set_names(column, values).to_pylist() == printed
    assert set_names(Column("s", "set('')", elements=("",)), pa.array([1, 0], pa.uint64())).to_pylist() == ["", ""]
