"""Creates a log, and appends entries to one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import UUID

from penstock.errors import BadInput
from penstock.files import REAL_FILES
from penstock.log import Log, Position
from penstock.operations.log.locate import locate_log

_APPEND_BYTES = 1 << 20  # entries are gathered into batches of about this size


def create_log(path: Path) -> UUID:
    """Creates an empty log and returns its UUID. Raises `BadInput` where something exists at `path`."""
    if REAL_FILES.list(path) or path.is_file():
        raise BadInput(f"{path} is there and not empty", hint="nothing was changed; a log wants a directory of its own")
    with Log.open(path.absolute()) as log:
        return log.uuid


def append_entries(path: Path, entries: Iterable[bytes]) -> Iterator[tuple[Position, Position]]:
    """Becomes the log's owner and appends; yields (first, last) of each batch once it is durable."""
    directory = locate_log(path)
    if (directory.parent / "progress").is_dir():
        raise BadInput(
            f"{directory} belongs to a flow of `penstock run`, which could not read a strange entry",
            hint="nothing was changed; append to a log of your own (`penstock log create PATH`)",
        )
    with Log.open(directory) as log:
        batch: list[bytes] = []
        for entry in entries:
            batch.append(entry)
            if sum(map(len, batch)) >= _APPEND_BYTES:
                yield _append(log, batch)
                batch = []
        if batch:
            yield _append(log, batch)


def _append(log: Log, batch: list[bytes]) -> tuple[Position, Position]:
    span = log.append_many(batch).result()
    return span.first, span.last
