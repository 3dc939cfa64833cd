"""Kernels of verify: hashes of keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile import kernel

_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@kernel
def _mixed(value: Any) -> Any:
    """FNV leaves the low bits of short keys much alike; this spreads them."""
    value = (value ^ (value >> _HALF)) * _MIX
    return value ^ (value >> _HALF)


@kernel
def add_bytes(data: Any, bounds: Any, hashes: Any) -> None:
    """Adds one value of a key to the hash of each row: the bytes between two bounds."""
    for row in range(len(hashes)):
        found = hashes[row]
        for at in range(bounds[row], bounds[row + 1]):
            found = (found ^ np.uint64(data[at])) * _PRIME
        hashes[row] = _mixed(found)


@kernel
def add_fixed(data: Any, width: int, hashes: Any) -> None:
    """As `add_bytes`, of values that all have so many bytes."""
    for row in range(len(hashes)):
        found = hashes[row]
        for at in range(row * width, (row + 1) * width):
            found = (found ^ np.uint64(data[at])) * _PRIME
        hashes[row] = _mixed(found)
