"""Offloads a log for `penstock log offload`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.clock import SYSTEM_CLOCK
from penstock.log import Log, LogSettings, OffloadProgress
from penstock.log.offload.offloader import to_offload
from penstock.operations.log.ledgers import read_ledger_list
from penstock.operations.log.locate import locate_log


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
