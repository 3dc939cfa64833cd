"""Opens the state of the log that a command names, read-only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from penstock.clock import SYSTEM_CLOCK
from penstock.log import LogReader
from penstock.operations.log.locate import open_reader, parse_position
from penstock.state import StateReader, StateSettings
from penstock.state.checkpoints.recovery import DIRECTORY, StateLocation
from penstock.state.engines.rocksdb.engine import DIRECTORY as ROCKSDB


def settings_for(directory: Path) -> StateSettings:
    """Settings that name the engine of the checkpoints in the log's directory."""
    written = directory / DIRECTORY / ROCKSDB
    return StateSettings(engine="rocksdb" if written.is_dir() else "native")


@contextlib.contextmanager
def open_state(path: Path, at: str | None = None) -> Iterator[StateReader]:
    """The state after the entry `at`, or at the durable end; closed at the end of the block."""
    with open_reader(path) as reader:
        settings = settings_for(reader.directory)
        state = StateReader.open(reader, at=parse_position(at) if at else None, settings=settings)
        try:
            yield state
        finally:
            state.close()


def location_of(reader: LogReader) -> StateLocation:
    """Where the state of the reader's log is, for reading alone."""
    return StateLocation(reader, reader.files, SYSTEM_CLOCK, settings_for(reader.directory), read_only=True)
