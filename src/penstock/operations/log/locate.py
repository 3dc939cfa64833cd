"""Finds and opens the log that a command names, its list of ledgers, and its files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from penstock.errors import BadInput, Corruption, Unavailable
from penstock.files import REAL_FILES, File
from penstock.log import LogReader, Position
from penstock.log.cursors.registry import Registered
from penstock.log.ledgers.info import LedgerList, ledger_id_of
from penstock.log.read.reader import END_NAME, default_metadata_path, log_key
from penstock.metadata import SqliteMetadata


def locate_log(path: Path) -> Path:
    """The log's directory: `path` itself, or `log/` in a state directory. Raises `BadInput` where neither is one."""
    for directory in (path, path / "log"):
        if (directory / END_NAME).is_file() or any(ledger_id_of(name) for name in REAL_FILES.list(directory)):
            return directory.absolute()
    raise BadInput(
        f"{path} holds no log",
        hint="give the log's directory or a state directory; `penstock log create PATH` makes a new log",
    )


@contextlib.contextmanager
def open_reader(path: Path) -> Iterator[LogReader]:
    """A reader of the log at `path`, closed at the end. Raises `Corruption` where the end file is missing."""
    directory = locate_log(path)
    try:
        reader = LogReader.open(directory)
    except FileNotFoundError as error:
        raise Corruption(
            f"{directory / END_NAME} is missing", hint="nothing was changed; restore the directory from a copy"
        ) from error
    try:
        yield reader
    finally:
        reader.close()


def read_ledger_list(directory: Path) -> LedgerList:
    """The log's list of ledgers from the metadata store, without taking a lock."""
    with closing(SqliteMetadata(default_metadata_path(directory), must_exist=True)) as metadata:
        found = metadata.get(log_key(directory))
    if found is None:
        raise Unavailable(f"{default_metadata_path(directory)} knows no log {directory.name}")
    return LedgerList.decode(found.value)


def cursor_directory(directory: Path, cursor: Registered) -> Path:
    """Where the cursor's record log is."""
    return directory / cursor.directory


@contextlib.contextmanager
def open_file(path: Path) -> Iterator[File]:
    """The file for reading, closed at the end."""
    file = REAL_FILES.open(path)
    try:
        yield file
    finally:
        file.close()


def parse_position(text: str) -> Position:
    """Parses `LEDGER:ENTRY`. Raises `BadInput` for anything else."""
    try:
        return Position.parse(text)
    except ValueError:
        raise BadInput(f"{text!r} is no position", hint="LEDGER:ENTRY, such as 4:17") from None
