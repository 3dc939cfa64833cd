"""Warming up compiles all there is to compile: nothing is left for the first task of a fresh machine."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import LIMIT_SECONDS

CHECK = """
from penstock.binlog import events, kernels, text_kernels, warm
assert warm.warm_kernels() == 1
for module in (events, kernels, text_kernels):
    for name, value in vars(module).items():
        if hasattr(value, "signatures") and value.__module__ == module.__name__:
            inner = name == "is_rows" or name.startswith("_")  # only other kernels call it
            called_by_kernels_only = inner and name not in ("_count_events", "_fill_events", "_first_bad_crc")
            assert called_by_kernels_only or len(value.signatures) == 1, (name, value.signatures)
"""


def test_all_kernels_are_compiled() -> None:
    subprocess.run([sys.executable, "-c", CHECK], check=True, timeout=LIMIT_SECONDS)
