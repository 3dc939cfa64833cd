"""ENUM and SET by the names of their elements: for every format but Canal-JSON, which has their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.kernels import names as name_kernels
from penstock.encode.text import numbers, valid_rows
from penstock.errors import BadInput
from penstock.schema.model import Column


def element_names(column: Column, values: pa.Array[Any]) -> pa.Array[Any]:
    """The names that the values of an ENUM or SET stand for."""
    return (enum_names if column.base_type == "enum" else set_names)(column, values)


def enum_names(column: Column, values: pa.Array[Any]) -> pa.Array[Any]:
    """The names; empty for 0, the error value."""
    if (pc.max(values).as_py() or 0) > len(column.elements):
        raise BadInput(f"column {column.name} holds an ordinal that {column.mysql_type} does not have")
    return pa.array(["", *column.elements], pa.string()).take(values)


def set_names(column: Column, values: pa.Array[Any]) -> pa.Array[Any]:
    """The names, joined by commas."""
    if (pc.max(values).as_py() or 0) >> len(column.elements):
        raise BadInput(f"column {column.name} holds a member that {column.mysql_type} does not have")
    names = [element.encode() for element in column.elements]
    bounds = np.zeros(len(names) + 1, np.int64)
    np.cumsum([len(name) for name in names], out=bounds[1:])
    masks, valid = numbers(values), valid_rows(values)
    offsets = np.empty(len(values) + 1, np.int32)
    name_kernels.set_offsets(masks, valid, bounds, offsets)
    out = np.empty(offsets[-1], np.uint8)
    name_kernels.set_names(masks, valid, bounds, np.frombuffer(b"".join(names), np.uint8), offsets, out)
    validity = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes()) if values.null_count else None
    return pa.StringArray.from_buffers(
        len(values), pa.py_buffer(offsets.data), pa.py_buffer(out.data), validity, values.null_count
    )
