"""Where compiled kernels are kept between processes: only where nobody else can write.

What lies in the cache is machine code that the next process runs. So a directory counts only if it is this user's and
nobody else could write to it or replace it (`penstock.files.private`). The first such place is used:

1. `NUMBA_CACHE_DIR`, where it is set;
2. `penstock/kernels` in the user's cache directory (`XDG_CACHE_HOME`, else `~/.cache`);
3. `penstock-kernels-<uid>` in the system's temporary directory, for this user alone.

Where there is none, kernels are compiled in memory, by each process anew: everything works all the same. One warning a
process says so, or says that the directory which the user named is not used.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import BadInput
from penstock.files.private import check_private_directory, make_private_directory
from penstock.files.user_cache import cache_places

_logger = logging.getLogger(__name__)
_warned = False


@functools.cache
def place_for(source_directory: Path) -> Path | None:
    """The directory for compiled kernels of the files in `source_directory`; None where nothing can be kept."""
    refusals: list[str] = []
    for place in _places():
        try:
            found = _prepared(place, _name_of(source_directory))
        except OSError as error:
            refusals.append(str(error))
            continue
        if refusals and os.environ.get("NUMBA_CACHE_DIR"):
            warn_once(f"compiled kernels are kept in {place}: {refusals[0]}")
        return found
    warn_once(f"every process compiles its kernels anew, because there is no place to keep them: {'; '.join(refusals)}")
    return None


def warn_once(message: str) -> None:
    """Says it, unless something was said in this process already."""
    global _warned
    if not _warned:
        _warned = True
        _logger.warning("%s", message)


def _places() -> Iterator[Path]:
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        yield Path(named).absolute()
    yield from cache_places("kernels")


def _name_of(source_directory: Path) -> str:
    """One name for each directory of sources: two installations share no file."""
    digest = hashlib.sha256(os.fsencode(source_directory.absolute())).hexdigest()
    return f"{source_directory.name}_{digest[:32]}"


def _prepared(place: Path, name: str) -> Path:
    """The directory `name` in `place`, made where it is missing. Raises `OSError` where code must not be kept there."""
    with _as_refusal():
        if not place.exists():
            make_private_directory(place)
        check_private_directory(place)
        directory = place / name
        make_private_directory(directory)
    tempfile.TemporaryFile(
        dir=directory
    ).close()  # tells what permissions alone do not: a file system that is read-only
    return directory


def refuse_others(directory: Path) -> None:
    """Raises `OSError` where another user could put something into the directory, or another one in its place.

    Called before each use: whoever removes old files from a temporary directory makes room for somebody else's.
    """
    with _as_refusal():
        check_private_directory(directory.parent)
        check_private_directory(directory)


@contextlib.contextmanager
def _as_refusal() -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise PermissionError(error.message) from error
