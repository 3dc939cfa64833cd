"""Changes a log, as its owner: `penstock log create`, `append`, `trim`, `offload` and `skip`.

A dry run of `trim`, `offload` or `skip` says what would go. It takes no ownership.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import BadInput
from penstock.files import REAL_FILES
from penstock.log import Log, LogSettings, OffloadProgress, Position, Skipping, skip_closed
from penstock.log.ledgers.holds import read_holds
from penstock.log.offload.offloader import to_offload
from penstock.log.read.reader import default_metadata_path
from penstock.log.retention.trim import over_retention, passed_by
from penstock.metadata import SqliteMetadata
from penstock.operations.log.locate import locate_log, read_ledger_list


def create_log(path: Path) -> UUID:
    """Creates an empty log and returns its UUID. Raises `BadInput` where something exists at `path`."""
    if REAL_FILES.list(path) or path.is_file():
        raise BadInput(f"{path} is there and not empty", hint="nothing was changed; a log wants a directory of its own")
    with Log.open(path.absolute()) as log:
        return log.uuid


def append_batches(path: Path, batches: Iterable[list[bytes]]) -> Iterator[tuple[Position, Position]]:
    """Becomes the log's owner and appends each batch as it comes; yields (first, last) of it once it is durable."""
    directory = locate_log(path)
    if (directory.parent / "progress").is_dir():
        raise BadInput(
            f"{directory} belongs to a flow of `penstock run`, which could not read a strange entry",
            hint="nothing was changed; append to a log of your own (`penstock log create PATH`)",
        )
    with Log.open(directory) as log:
        for batch in batches:
            yield log.append_many(batch).result()


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


def skip_ledger(path: Path, ledger: int, *, dry_run: bool) -> Skipping:
    """Gives up what cannot be read of the ledger, or says what would be lost. Works on a log that cannot be opened."""
    return skip_closed(locate_log(path), ledger, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class OffloadOutcome:
    """The ledgers that were copied, and those whose local files were removed."""

    copied: list[int]
    moved: list[int]


def offload_log(
    path: Path,
    url: str,
    *,
    keep_bytes: int,
    lag_seconds: float,
    dry_run: bool,
    progress: Callable[[OffloadProgress], None] | None = None,
) -> OffloadOutcome:
    """Copies sealed ledgers beyond the newest `keep_bytes` to the store, and removes local files whose lag is over."""
    settings = LogSettings(maintenance_interval_seconds=0, offload_url=url, offload_deletion_lag_seconds=lag_seconds)
    directory = locate_log(path)
    if dry_run:
        listed = read_ledger_list(directory)
        due_ms = SYSTEM_CLOCK.wall_ms() - lag_seconds * 1000
        return OffloadOutcome(
            [info.id for info in to_offload(listed.ledgers, keep_bytes)],
            [info.id for info in listed.ledgers if info.offload is not None and info.offload.state == "copied"
             and info.offload.copied_ms <= due_ms],
        )  # fmt: skip
    with Log.open(directory, settings) as log:
        before = {view.info.id for view in log.reader().ledgers() if view.info.is_local}
        copied = log.offload(keep_bytes=keep_bytes, progress=progress)
        log.reader().refresh()
        views = log.reader().ledgers()
        return OffloadOutcome(
            copied, [view.info.id for view in views if not view.info.is_local and view.info.id in before]
        )
