"""A real log in a fresh state directory, and keepers over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.changefeed.keeper import Keeper
from penstock.log import Log, LogReader, LogSettings

MakeLog = Callable[..., None]
OpenKeeper = Callable[[], Keeper]


def fill_log(state_dir: Path, entries: int, **settings: int) -> None:
    """Appends `entries` more entries and lets go of the log."""
    log = Log.open(state_dir / "log", LogSettings(**settings))
    try:
        for pending in [log.append(b"entry %d" % number) for number in range(entries)]:
            pending.result()
    finally:
        log.close()


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    fill_log(tmp_path, 40)
    return tmp_path


@pytest.fixture
def open_keeper(state_dir: Path) -> Iterator[OpenKeeper]:
    """Opens the keeper of `lake`; the one before is closed first, as a restart does."""
    opened: list[Keeper | LogReader] = []

    def open_again() -> Keeper:
        while opened:
            opened.pop().close()
        opened.append(reader := LogReader.open(state_dir / "log"))
        opened.append(keeper := Keeper.open(state_dir, "lake", reader))
        return keeper

    yield open_again
    while opened:
        opened.pop().close()
