"""Threads of Penstock's own, which may not be had: a user's or a container's limit is reached, or memory is short."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.errors import Unavailable


def start_thread(run: Callable[[], object], name: str, *, daemon: bool = True) -> threading.Thread:
    """A thread that runs. Raises `Unavailable` where the system gives none. A `daemon` does not hold up the process's end.

    Keep the thread only once this returned: one that did not start can neither be joined nor started again.
    """
    thread = threading.Thread(target=run, name=name, daemon=daemon)
    try:
        thread.start()
    except RuntimeError as error:
        raise Unavailable(
            f"no thread for {name}: {error}", hint="raise the limit of threads or memory, or try again"
        ) from error
    return thread
