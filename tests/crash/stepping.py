"""Penstock's log and state without threads: their background work is done while somebody waits for it.

Hundreds of crash states a second can be looked at this way, and a seed always gives the same ones.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import penstock.state.log_state  # noqa: F401 (the log imports it late; its modules are to be patched too)
from penstock.log import Pending, stall
from penstock.log.records import workers
from tests.crash.framework import stepping as framework
from tests.crash.framework.stepping import STEPS, Steps

__all__ = ["STEPS", "stepping"]

_PACKAGES = ("penstock.log.", "penstock.state.", "penstock.metadata.", "penstock.threads")
_PROCESS_WIDE = {"ReadCache", "OpenLogs"}


def stepping() -> contextlib.AbstractContextManager[Steps]:
    """See framework/stepping.py."""
    kept = {
        id(value): value
        for name, module in list(sys.modules.items())
        if name.startswith("penstock.log.")
        for value in vars(module).values()
        if type(value).__name__ in _PROCESS_WIDE
    }

    def forget() -> None:
        """A new process has none of this."""
        for shared in (workers.COMMITS, workers.CHORES, stall.WATCH):
            shared._reset()
        value: Any
        for value in kept.values():
            value.__init__()

    return framework.stepping(_PACKAGES, Pending, forget)
