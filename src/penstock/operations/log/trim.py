"""Trims a log for `penstock log trim`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import BadInput
from penstock.log import Log, LogSettings
from penstock.log.ledgers.holds import read_holds
from penstock.log.read.reader import default_metadata_path
from penstock.log.retention.trim import over_retention, passed_by
from penstock.metadata import SqliteMetadata
from penstock.operations.log.ledgers import read_ledger_list
from penstock.operations.log.locate import locate_log


def trim_log(path: Path, keep_seconds: float | None, keep_bytes: int | None, *, dry_run: bool) -> list[int]:
    """Removes the ledgers that every cursor and pin has passed and that need not be kept. Returns their ids."""
    if keep_seconds is None and keep_bytes is None:
        raise BadInput("nothing says what may go", hint="--keep-seconds 0 removes all that every cursor has passed")
    settings = LogSettings(retention_seconds=keep_seconds, retention_bytes=keep_bytes, maintenance_interval_seconds=0)
    directory = locate_log(path)
    if not dry_run:
        with Log.open(directory, settings) as log:
            return log.trim()
    listed = read_ledger_list(directory)
    with closing(SqliteMetadata(default_metadata_path(directory), must_exist=True)) as metadata:
        holds = read_holds(metadata, directory.name).holds
    going: list[int] = []
    for info in listed.ledgers[: over_retention(listed.ledgers, settings, SYSTEM_CLOCK.wall_ms())]:
        if not passed_by(info, holds):
            break
        going.append(info.id)
    return going
