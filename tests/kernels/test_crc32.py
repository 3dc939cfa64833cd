"""The compiled checksum is zlib's, for every length and place at which its folds and words begin or end."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from penstock.kernels import crc32 as crc_kernels
from penstock.kernels.crc32 import crc32_of, extend
from tests.support.fresh import run_fresh

FOLD_BYTES = crc_kernels._FOLD_BYTES


@pytest.mark.parametrize("start", [0, 1, 7])
def test_it_is_zlibs(start: int) -> None:
    raw = np.random.default_rng(1).integers(0, 256, 70_000, dtype=np.uint8)
    for size in (*range(5 * FOLD_BYTES), 8191, 8192, 65_536, 69_000):
        assert crc32_of(raw, start, start + size) == zlib.crc32(raw[start : start + size].tobytes()), size


def test_it_goes_on_from_any_byte() -> None:
    raw = np.random.default_rng(2).integers(0, 256, 4 * FOLD_BYTES, dtype=np.uint8)
    for cut in range(len(raw) + 1):
        register = extend(extend(np.uint32(0xFFFFFFFF), raw, 0, cut), raw, cut, len(raw))
        assert int(register) ^ 0xFFFFFFFF == zlib.crc32(raw.tobytes()), cut


@pytest.mark.parametrize("without", ["the instruction", "unchecked bounds"])
def test_it_is_the_same_by_tables_alone(without: str, tmp_path: Path) -> None:
    program = f"""
import llvmlite.binding as llvm
features = llvm.get_host_cpu_features()
features["pclmul"] = {without!r} != "the instruction"
llvm.get_host_cpu_features = lambda: features
from tests.kernels.test_crc32 import crc_kernels, test_it_is_zlibs
assert not crc_kernels._FOLDING
test_it_is_zlibs(1)
"""
    environment = {"NUMBA_CACHE_DIR": str(tmp_path)}
    if without == "unchecked bounds":
        environment["NUMBA_BOUNDSCHECK"] = "1"
    run_fresh(program, **environment)
