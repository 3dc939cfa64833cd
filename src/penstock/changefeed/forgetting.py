"""A changefeed that is in no configuration any more keeps its place, and so holds the log, until somebody says that it is to be
forgotten.

Order: (1) `progress/NAME.forgotten` is there: from here on nothing of it counts; (2) its cursor is deleted, and the log may be
trimmed; (3) its progress log is removed, with the versions of its settings; (4) the mark of (1) is removed. What a power cut
leaves after (1) is finished by the next one that asks, and by whoever opens a changefeed of that name: it begins anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import BadInput
from penstock.files import REAL_FILES, Files
from penstock.files.seam import replace_file
from penstock.log import CursorTable, LogReader
from penstock.log.deletion import remove_record_log
from penstock.log.position import Position

_END = ".end"  # of a record log
_MARK = ".forgotten"


@dataclass(frozen=True, slots=True)
class LeftFeed:
    """A changefeed that nobody delivers. `mark_delete`: its place; None where it has none any more. `entries`: so many of the
    log are kept for it, unless others need them too."""

    name: str
    mark_delete: Position | None
    entries: int


def left_feeds(
    state_dir: Path, configured: Collection[str], reader: LogReader, files: Files = REAL_FILES
) -> list[LeftFeed]:
    """Those that are not among the `configured` ones. Opens nothing, and works beside a run."""
    names = _recorded(state_dir, files) - set(configured)
    if not names:
        return []
    table = CursorTable(reader, state_dir / "cursors", files)
    try:
        positions = table.positions()
    finally:
        table.close()
    found = []
    for name in sorted(names):
        place = positions.get(name)
        found.append(LeftFeed(name, place, reader.count(place, reader.end()) if place is not None else 0))
    return found


def forget_changefeed(state_dir: Path, name: str, reader: LogReader, *, files: Files = REAL_FILES) -> None:
    """Gives up its place in the log, and all that was known of it; its files at the sink stay. Durable when it returns. For the
    holder of the state directory's lock, with no keeper of it open. Raises `BadInput` where there is no such changefeed."""
    if name not in _recorded(state_dir, files):
        raise BadInput(
            f"there is no changefeed {name!r} in {state_dir}", hint="penstock status names those that there are"
        )
    replace_file(files, _mark(state_dir, name), [b"forgotten\n"])
    finish_forgetting(state_dir, name, reader, files)


def finish_forgetting(state_dir: Path, name: str, reader: LogReader, files: Files = REAL_FILES) -> None:
    """Steps 2 to 4, if step 1 was done."""
    if not files.exists(_mark(state_dir, name)):
        return
    table = CursorTable(reader, state_dir / "cursors", files)
    try:
        with contextlib.suppress(BadInput):  # it is deleted already
            table.delete(name)
    finally:
        table.close()
    remove_record_log(files, state_dir / "progress", name)
    files.remove(_mark(state_dir, name))
    files.sync_directory(state_dir / "progress")


def _mark(state_dir: Path, name: str) -> Path:
    return state_dir / "progress" / f"{name}{_MARK}"


def _recorded(state_dir: Path, files: Files) -> set[str]:
    if not files.exists(state_dir / "progress"):
        return set()
    names = files.list(state_dir / "progress")
    return {name.removesuffix(end) for end in (_END, _MARK) for name in names if name.endswith(end)}
