"""Where this user keeps what can be made again at any time, and helps the next process."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_places(name: str) -> Iterator[Path]:
    """Places for what goes by `name`, the best first: `penstock/<name>` in the user's cache directory (`XDG_CACHE_HOME`, else
    `~/.cache`), then `penstock-<name>-<uid>` in the system's temporary directory. None of them need exist, or be safe: whoever
    takes one asks `penstock.files.private`."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if not caches.is_absolute():  # the specification of XDG_CACHE_HOME says to pass over a relative one
        with contextlib.suppress(RuntimeError):  # nobody knows the user's home
            caches = Path.home() / ".cache"
    if caches.is_absolute():
        yield caches / "penstock" / name
    try:
        temporary = Path(tempfile.gettempdir()).absolute()
    except FileNotFoundError:  # there is no directory that can be written to
        return
    yield temporary / f"penstock-{name}-{os.geteuid()}"
