"""Tells what the system refuses right now from damage: that no file can be opened says nothing about the bytes in it.

Damage makes an engine step over a checkpoint. Were a refusal taken for it, a process without free file descriptors
would find that its whole state is lost, or go back to an older checkpoint and remove the newer one.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import PenstockError, StorageFailed, Unavailable
from penstock.files.seam import REPAIR_HINT

_RIGHT_NOW = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


def refusal(path: Path, error: BaseException) -> PenstockError | None:
    """The error to raise where the system refused an operation on `path`; None where it did not, so that the bytes may
    be damaged. RocksDB tells the reason as text alone."""
    number = getattr(error, "errno", None)
    if number is None:
        text = str(error)
        number = next((one for one in (*_RIGHT_NOW, *_DENIED) if os.strerror(one) in text), None)
    if isinstance(error, MemoryError) or number in _RIGHT_NOW:
        return Unavailable(f"{path} cannot be read right now: {error}", hint="raise the limit, or try again")
    if number in _DENIED:
        return StorageFailed(f"{path} may not be read: {error}", hint="give this user the rights to its files")
    return None


def raise_refusal(path: Path, error: BaseException) -> None:
    """Raises `refusal`, where it is one."""
    refused = refusal(path, error)
    if refused is not None:
        raise refused from error


@contextlib.contextmanager
def typed_refusals(path: Path) -> Iterator[None]:
    """Turns an `OSError` of the block into `Unavailable` or `StorageFailed`. Not that a file is not there: whoever reads
    beside the owner lists the directory again."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise_refusal(path, error)
        raise StorageFailed(f"{path}: {error}", hint=REPAIR_HINT) from error
