"""The ledgers of a log, summarised for `penstock log ls`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import Unavailable
from penstock.log import LedgerView, Position
from penstock.log.ledgers.info import LedgerList
from penstock.log.read.reader import default_metadata_path, log_key
from penstock.metadata import SqliteMetadata
from penstock.operations.log.locate import open_reader


@dataclass(frozen=True, slots=True)
class LogSummary:
    """A log as `penstock log ls` shows it."""

    directory: Path
    uuid: str
    epoch: int
    first: Position
    end: Position
    entries: int
    bytes: int
    terminated: bool
    properties: dict[str, str]
    ledgers: list[LedgerView]


def summarize_log(path: Path) -> LogSummary:
    """The log at `path` as of its durable end."""
    with open_reader(path) as reader:
        views = reader.ledgers()
        listed = read_ledger_list(reader.directory)
        return LogSummary(
            reader.directory,
            str(reader.uuid),
            listed.epoch,
            reader.first,
            reader.end(),
            sum(view.entries for view in views),
            sum(view.frames_end for view in views),
            listed.terminated,
            dict(listed.properties),
            list(views),
        )


def read_ledger_list(directory: Path) -> LedgerList:
    """The log's list of ledgers from the metadata store, without taking a lock."""
    with closing(SqliteMetadata(default_metadata_path(directory), must_exist=True)) as metadata:
        found = metadata.get(log_key(directory))
    if found is None:
        raise Unavailable(f"{default_metadata_path(directory)} knows no log {directory.name}")
    return LedgerList.decode(found.value)
