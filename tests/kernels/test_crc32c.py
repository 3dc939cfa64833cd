"""The compiled checksum is CRC32C, for every length and place at which its blocks, streams and folds begin or end."""

from __future__ import annotations

from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from penstock.kernels import crc32c as crc_kernels
from penstock.kernels.crc32c import crc_of
from tests.support.fresh import run_fresh

_BLOCKS = (
    crc_kernels._SHORT * 3,
    crc_kernels._LONG * 3,
    crc_kernels._SMALL * crc_kernels._BLOCK_BYTES,
    crc_kernels._LARGE * crc_kernels._BLOCK_BYTES,
)


@pytest.mark.parametrize("start", [0, 1, 7])
def test_it_is_crc32c(start: int) -> None:
    raw = np.random.default_rng(1).integers(0, 256, 300_000, dtype=np.uint8)
    sizes = {0, 1, 7, 8, 9, 63, 64, 65, 65_604, 299_000}
    for first in _BLOCKS:
        for second in (0, *_BLOCKS):
            sizes |= {size for size in range(first + second - 1, first + second + 2) if size < len(raw) - 8}
    for size in sorted(sizes):
        assert crc_of(raw, start, start + size) == google_crc32c.value(raw[start : start + size].tobytes()), size


@pytest.mark.parametrize("lacks", ["vpclmulqdq", "sse4.2"])
def test_it_is_the_same_on_an_older_processor(lacks: str, tmp_path: Path) -> None:
    program = f"""
import llvmlite.binding as llvm
features = llvm.get_host_cpu_features()
features[{lacks!r}] = False
llvm.get_host_cpu_features = lambda: features
from tests.kernels.test_crc32c import crc_kernels, test_it_is_crc32c
assert not crc_kernels._FOLDING and crc_kernels._HARDWARE == ({lacks!r} != "sse4.2")
test_it_is_crc32c(1)
"""
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)}
    run_fresh(program, **environment)


def test_zeros_and_a_flipped_bit_anywhere_change_it() -> None:
    raw = np.zeros(200_000, np.uint8)
    assert crc_of(raw, 0, len(raw)) == google_crc32c.value(bytes(200_000))
    whole = crc_of(raw, 0, len(raw))
    for at in np.random.default_rng(2).integers(0, len(raw), 300):
        raw[at] ^= 16
        assert crc_of(raw, 0, len(raw)) != whole, at
        raw[at] ^= 16
