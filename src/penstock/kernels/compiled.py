"""Whether the inner loops of this installation were compiled: what the first run of one waits for, and should say."""

from __future__ import annotations

from pathlib import Path

from penstock import __version__
from penstock.files.private import write_private
from penstock.kernels.places import place_for, refuse_others


def are_compiled() -> bool:
    """Whether a process of this installation, in this version, came through all of them."""
    note = _note()
    return note is not None and note.exists()


def note_compiled() -> None:
    """From here on they are. Nothing happens where compiled code cannot be kept."""
    note = _note()
    if note is not None and not note.exists():
        try:
            refuse_others(note.parent)
            write_private(note, "")
        except OSError:
            return  # the next first run says once more that it compiles


def _note() -> Path | None:
    place = place_for(Path(__file__).parent)
    return None if place is None else place / f"compiled-{__version__}"
