"""What an examination finds: the places where a file or an object is not what was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from penstock.errors import Corruption, PenstockError

DAMAGE_MAX = 100  # reported for one file, so that a disk full of garbage still gives a readable report


class Damage(NamedTuple):
    """One damaged place: what is wrong at byte `offset` of `path`."""

    path: Path | str  # str: the URL of an object
    offset: int
    what: str


class Examined(NamedTuple):
    """What a file, a ledger or a record log holds, and what is damaged in it."""

    entries: int
    bytes: int
    damage: list[Damage]


def damage_of(error: Exception, path: Path | str) -> Damage:
    """The damage that an error reports, in the file that the error names; at byte 0 of `path` where it names none.

    `frames.file_header.corruption` and `offload.format.damaged` write the sentence that is taken apart here.
    """
    message = error.message if isinstance(error, PenstockError) else str(error)
    named, separator, rest = message.partition(" is damaged at byte ")
    offset, colon, what = rest.partition(": ")
    if separator and colon and offset.isdecimal():
        return Damage(named if isinstance(path, str) else Path(named), int(offset), what)
    return Damage(path, 0, message)


def damage_found_by(look: Callable[[], object], path: Path) -> list[Damage]:
    """The `Corruption` that `look` raises, as damage; nothing where it raises none."""
    try:
        look()
    except Corruption as error:
        return [damage_of(error, path)]
    return []
