"""Warming up compiles all there is to compile: nothing is left for the first task of a fresh machine."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import LIMIT_SECONDS

CHECK = """
from penstock.binlog import events, warm
from penstock.binlog.json import kernel
from penstock.binlog.rows import addresses, layouts, old_temporal, text_kernels, values, walk
assert warm.warm_kernels() == 1
INNER = {"is_rows", "le", "be", "group_bytes", "decimal_group"}  # only other kernels call them
CALLED = {"_address_texts", "_count_events", "_fill_events", "_first_bad_crc"}
for module in (events, kernel, addresses, layouts, old_temporal, text_kernels, values, walk):
    for name, value in vars(module).items():
        if hasattr(value, "signatures") and value.__module__ == module.__name__:
            inner = name in INNER or (name.startswith("_") and name not in CALLED)
            expected = 4 if name == "integers" else 1  # for each width of what it writes
            assert inner or len(value.signatures) == expected, (name, value.signatures)
"""


def test_all_kernels_are_compiled() -> None:
    subprocess.run([sys.executable, "-c", CHECK], check=True, timeout=LIMIT_SECONDS)
