"""The frames of a log or a cursor as they are in the files, for `penstock log inspect`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from penstock.errors import BadInput
from penstock.files import REAL_FILES, File
from penstock.log.cursors.registry import registered
from penstock.log.frames.walk import FrameLine, walk_frames
from penstock.log.ledgers.info import ledger_path
from penstock.log.offload.store import TieredLedgerStore
from penstock.log.read.reader import default_metadata_path
from penstock.log.records.reading import in_force
from penstock.metadata import SqliteMetadata
from penstock.operations.log.cursors import cursor_directory
from penstock.operations.log.locate import locate_log, open_reader


def inspect_frames(
    path: Path, ledger: int | None, cursor: str | None, bad_only: bool
) -> Iterator[tuple[Path | str, FrameLine]]:
    """Yields (file, frame) for every ledger, for one, or for a cursor's record log, with what is wrong with each frame.

    Where a ledger is both local and offloaded, the local file is shown.
    """
    directory = locate_log(path)
    if cursor is not None:
        yield from ((file, line) for file, line in _cursor_frames(directory, cursor) if line.fault or not bad_only)
        return
    found = False
    with open_reader(path) as reader:
        for view in reader.ledgers():
            if ledger is not None and view.info.id != ledger:
                continue
            found = True
            store = TieredLedgerStore(directory, REAL_FILES, reader.uuid)
            opener = (
                open_file(ledger_path(directory, view.info.id))
                if view.info.is_local
                else closing(store.open(view.info))
            )
            with opener as file:
                for line in walk_frames(file, view.info.id, 0, view.frames_end):
                    if line.fault or not bad_only:
                        yield file.path, line
    if ledger is not None and not found:
        raise BadInput(f"the log has no ledger {ledger}", hint="`penstock log ls` names those that it has")


def _cursor_frames(directory: Path, cursor: str) -> Iterator[tuple[Path, FrameLine]]:
    with closing(SqliteMetadata(default_metadata_path(directory), must_exist=True)) as metadata:
        known = {one.name: one for one in registered(metadata, directory.name)}
    if cursor not in known:
        raise BadInput(f"the log has no cursor {cursor!r}", hint=f"it has: {', '.join(known) or 'none'}")
    where = cursor_directory(directory, known[cursor])
    found = in_force(REAL_FILES, where, cursor)
    with closing(found.file) as file:
        for line in walk_frames(file, found.number, found.header.first_entry, file.size()):
            yield file.path, line


@contextlib.contextmanager
def open_file(path: Path) -> Iterator[File]:
    """The file for reading, closed at the end."""
    file = REAL_FILES.open(path)
    try:
        yield file
    finally:
        file.close()
