"""How far a changefeed has durably come: asked of the running process, or read from the disk if none runs."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import Unavailable
from penstock.files import REAL_FILES
from penstock.log import Cursor, LogReader, Position
from penstock.wire import connect, socket_path

_TIMEOUT_SECONDS = 5.0


def delivered_through(state_dir: Path, changefeed: str, reader: LogReader) -> Position:
    """The cursor's mark-delete position: everything at or before it is at the sink.

    If no process answers, the state directory's lock is held while the cursor is read, so that a run that starts at
    this moment never meets a second owner of the cursor. Raises `Unavailable` if a run holds the lock and does not
    answer.
    """
    path = socket_path(state_dir / "run", "control")
    if path.exists():
        try:
            with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
                return Position.parse(client.call("checkpoint", changefeed=changefeed)["mark_delete"])
        except Unavailable:
            pass  # a killed run left its socket behind, or the run is busy; the lock decides which
    with REAL_FILES.lock(state_dir / "lock"):
        cursor = Cursor.open(reader, state_dir / "cursors", changefeed, start="earliest")
        try:
            return cursor.mark_delete_position
        finally:
            cursor.close()
