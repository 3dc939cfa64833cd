"""Reads entries of a log, follows new ones, and shows them to programs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from penstock.log import Entry, Position
from penstock.operations.log.locate import open_reader, parse_position

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
