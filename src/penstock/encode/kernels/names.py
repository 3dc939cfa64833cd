"""Kernels that write the members of a SET by their names."""

# ruff: noqa: PLR0917 - compiled kernels take their arrays by place
from __future__ import annotations

from typing import Any

import numpy as np

from penstock.encode.kernels.text import COMMA
from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes


@kernel
def set_offsets(masks: Any, valid: Any, names: Any, offsets: Any) -> None:
    """Where the comma-joined names of each mask start and end; a missing value takes no bytes. A comma comes once something
    stands before it, as servers print a set: one whose first members are empty texts has none for them."""
    at = 0
    offsets[0] = 0
    for row in range(len(masks)):
        if len(valid) == 0 or valid[row]:
            for bit in range(len(names) - 1):
                if (masks[row] >> np.uint64(bit)) & np.uint64(1):
                    if at > offsets[row]:
                        at += 1
                    at += names[bit + 1] - names[bit]
        offsets[row + 1] = at


@kernel
def set_names(masks: Any, valid: Any, names: Any, name_bytes: Any, offsets: Any, out: Any) -> None:
    for row in range(len(masks)):
        at = offsets[row]
        if len(valid) == 0 or valid[row]:
            for bit in range(len(names) - 1):
                if (masks[row] >> np.uint64(bit)) & np.uint64(1):
                    if at > offsets[row]:
                        out[at] = COMMA
                        at += 1
                    length = names[bit + 1] - names[bit]
                    copy_bytes(out, at, name_bytes, names[bit], length)
                    at += length
