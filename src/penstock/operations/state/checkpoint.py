"""Writes a checkpoint for `penstock state checkpoint`."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import Unavailable
from penstock.log import Log
from penstock.operations.log.locate import locate_log
from penstock.operations.state.opening import settings_for
from penstock.state import BucketState, CheckpointInfo


def checkpoint_state(path: Path, *, compact: bool) -> CheckpointInfo | None:
    """Becomes the log's owner and writes a checkpoint of its state; None where the log has no state."""
    directory = locate_log(path)
    settings = settings_for(directory)
    try:
        log = Log.open(directory)
    except Unavailable as error:
        raise Unavailable(
            f"a checkpoint is written by the log's owner, and {error.message}",
            hint="a running flow writes its own, whenever a ledger is full; stop it to write one by hand",
        ) from error
    with log:
        state = BucketState.open(log, settings)
        info = state.checkpoint()
        if info is not None and compact:
            state.engine.compact()
            return state.checkpoints()[0]
        return info
