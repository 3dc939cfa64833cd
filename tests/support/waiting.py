"""Waiting for something that happens beside the test: in another thread, another process or a server.

A test waits for a condition and goes on at once when it holds. The limit only ends a test that would hang, so it is far
beyond what a busy laptop needs, and it is the same everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_SECONDS = 180.0
_LOOK_SECONDS = 0.005  # between the first looks at the condition; the pause doubles up to the next number
_LOOK_SECONDS_MAX = 0.1


def wait_until(
    condition: Callable[[], object], what: str, explain: Callable[[], object] = str, *, seconds: float = LIMIT_SECONDS
) -> None:
    """Returns once the condition holds. Fails with `what` and the answer of `explain` after the limit."""
    deadline = time.monotonic() + seconds
    pause = _LOOK_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} s {explain()}"
        time.sleep(pause)
        pause = min(2 * pause, _LOOK_SECONDS_MAX)
