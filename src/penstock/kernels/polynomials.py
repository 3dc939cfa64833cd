"""The arithmetic of CRC registers: polynomials over bits, reflected, the highest power in the lowest bit.

Everything here runs once, at import, to make the tables and constants of the kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def byte_table(polynomial: int) -> Any:
    """What a register becomes, from each value of its lowest byte, after eight zero bits."""
    table = np.zeros(256, np.uint32)
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = (crc >> 1) ^ (polynomial if crc & 1 else 0)
        table[value] = crc
    return table


def zeros(polynomial: int, length: int) -> Any:
    """Tables that carry a register over `length` zero bytes, one for each byte of it."""
    matrix = _zero_bits(polynomial, 8 * length)
    return np.array([[_times(matrix, value << shift) for value in range(256)] for shift in (0, 8, 16, 24)], np.uint32)


def fold_constant(polynomial: int, bits: int) -> int:
    """x to the power of `bits`, modulo the polynomial, in the form that a multiplication of reflected bits needs."""
    return _times(_zero_bits(polynomial, bits), 1 << 31) << 1


def _times(matrix: list[int], vector: int) -> int:
    total = 0
    for row in matrix:
        if vector & 1:
            total ^= row
        vector >>= 1
    return total


def _zero_bits(polynomial: int, count: int) -> list[int]:
    """The matrix that carries a register over `count` zero bits."""
    power = [polynomial, *(1 << bit for bit in range(31))]  # carries over one bit; then over two, four, …
    found = [1 << bit for bit in range(32)]
    while count:
        if count & 1:
            found = [_times(power, row) for row in found]
        power = [_times(power, row) for row in power]
        count >>= 1
    return found
