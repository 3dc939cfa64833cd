"""Reads a log: its entries for `penstock log read` and `tail`, and for `penstock log inspect` the frames of a ledger or a
cursor as they are in the files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from penstock.errors import BadInput
from penstock.files import REAL_FILES
from penstock.log import Entry, Position
from penstock.log.cursors.registry import registered
from penstock.log.frames.walk import FrameLine, walk_frames
from penstock.log.ledgers.info import ledger_path
from penstock.log.offload.store import TieredLedgerStore
from penstock.log.read.reader import default_metadata_path
from penstock.log.records.reading import in_force
from penstock.metadata import SqliteMetadata
from penstock.operations.log.locate import cursor_directory, locate_log, open_file, open_reader, parse_position

_POLL_SECONDS = 0.05


def read_log(path: Path, start: str | None, end: str | None, limit: int | None) -> Iterator[Entry]:
    """The durable entries from `start` to `end`, both included; without them, from the log's first to its end."""
    with open_reader(path) as reader:
        first = parse_position(start) if start else reader.first
        last = parse_position(end) if end else reader.end()
        if last.entry_id < 0 or first > last:
            return
        yield from islice(reader.read(first, last), limit)


def tail_log(path: Path, last: int, *, follow: bool, seconds: float | None = None) -> Iterator[Entry]:
    """The last `last` entries; then, with `follow`, each new entry once it is durable, for at most `seconds`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    with open_reader(path) as reader:
        end = reader.end()
        total = reader.count(Position(0, -1), end)
        position = reader.nth(total - min(last, total)) if last and total else None
        position = position or reader.next(end)
        while True:
            end = reader.end()
            if position <= end:
                yield from reader.read(position, end)
                position = reader.next(end)
            elif not follow or reader.terminated() or (deadline is not None and time.monotonic() >= deadline):
                return
            else:
                time.sleep(_POLL_SECONDS)
                if position > reader.end():
                    position = reader.next(end)  # the log may have continued in a new ledger


def entry_document(entry: Entry) -> dict[str, object]:
    """An entry as a JSON document: its data as text if it is UTF-8, else as hexadecimal digits."""
    raw = bytes(entry.data)
    document: dict[str, object] = {
        "position": str(entry.position),
        "wall_ms": entry.wall_ms,
        "bytes": len(raw),
        "changes": len(entry.changes),
    }
    try:
        document["data"] = raw.decode()
        json.dumps(document["data"], ensure_ascii=False).encode()
    except UnicodeError:
        document["data_hex"] = raw.hex()
    return document


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
